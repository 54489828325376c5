"""Metrics that a user writes, each in at most 15 lines besides the imports; the examples of the documentation."""
