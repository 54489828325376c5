"""Batch APIs: requests that wait for a wave, replies that are replayed, and the providers that answer waves."""
