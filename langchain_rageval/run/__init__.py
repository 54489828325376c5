"""Execution of model requests: drivers, concurrency limiter, retries, single-flight, usage, budget, journal."""
