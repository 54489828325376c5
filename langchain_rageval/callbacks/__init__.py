"""Production monitoring: a callback handler that follows runs of a chain, and their scoring in the background."""
