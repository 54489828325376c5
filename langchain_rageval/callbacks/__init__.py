"""Watching a chain in production: a callback handler, what it follows, and how runs are scored meanwhile."""
