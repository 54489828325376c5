"""Chains of users: they are asked questions, and their runs are followed."""
