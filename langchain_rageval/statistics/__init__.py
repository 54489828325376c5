"""Statistics on plain numbers: intervals, comparisons of two runs, agreement with labels, and ranking measures."""

from langchain_rageval.statistics.agreement import Estimate, krippendorff_alpha
from langchain_rageval.statistics.intervals import (
    PredictionPoweredMean,
    bounded_mean_interval,
    prediction_powered_mean,
    student_t_p,
    student_t_quantile,
)
from langchain_rageval.statistics.paired import (
    PairedDifference,
    detectable_difference,
    holm,
    paired_difference,
    sign_flip_p,
)

__all__ = [
    "Estimate",
    "PairedDifference",
    "PredictionPoweredMean",
    "bounded_mean_interval",
    "detectable_difference",
    "holm",
    "krippendorff_alpha",
    "paired_difference",
    "prediction_powered_mean",
    "sign_flip_p",
    "student_t_p",
    "student_t_quantile",
]
