"""Batch APIs: requests collected for a batch, replayed replies, and the providers that answer batches."""
