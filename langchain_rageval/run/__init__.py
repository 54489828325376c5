"""What one evaluation shares while it runs: slots, retries, the in-flight table, what was paid."""
