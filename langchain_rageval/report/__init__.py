"""Reports: rows of a run, summary, comparison, diagnosis, thresholds, labels, and output as HTML, plot and MLflow."""
