"""Chains of users: ask them questions, and collect answers and contexts from their runs."""
