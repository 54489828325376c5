"""Reports of runs: summary, comparison, diagnosis, gates, human labels, and output as HTML, plot and MLflow."""
