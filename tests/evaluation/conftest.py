"""Fixtures of the tests of evaluations."""

from helpers.certificates import certificates

__all__ = ["certificates"]
