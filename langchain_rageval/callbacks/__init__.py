"""Production monitoring: a callback handler that records runs of a chain and scores them in the background."""
