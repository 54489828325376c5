"""Evaluation of samples with metrics: `evaluate`, `aevaluate`, `astream_evaluate` and the cost estimate `plan`."""
