"""Trust in a judge: qualification, agreement with human labels, calibration, leaderboards and rubric studies."""
