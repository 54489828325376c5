"""Numbers in, numbers out: intervals, and paired comparisons."""

from langchain_rageval.statistics.intervals import bounded_mean_interval
from langchain_rageval.statistics.paired import detectable_difference, holm, mean_difference_interval, sign_flip_p

__all__ = ["bounded_mean_interval", "detectable_difference", "holm", "mean_difference_interval", "sign_flip_p"]
