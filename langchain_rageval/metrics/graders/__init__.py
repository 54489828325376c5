"""Graders of retrieved chunks by relevance, one per file; each ranking metric takes one."""
