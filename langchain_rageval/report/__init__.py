"""What came out of a run: the rows, their summary, and the gates on it."""
