"""Pure statistics: intervals, paired comparisons, agreement with labels, and ranking measures."""

from langchain_rageval.statistics.agreement import Estimate, krippendorff_alpha
from langchain_rageval.statistics.intervals import bounded_mean_interval
from langchain_rageval.statistics.paired import detectable_difference, holm, mean_difference_interval, sign_flip_p

__all__ = [
    "Estimate",
    "bounded_mean_interval",
    "detectable_difference",
    "holm",
    "krippendorff_alpha",
    "mean_difference_interval",
    "sign_flip_p",
]
