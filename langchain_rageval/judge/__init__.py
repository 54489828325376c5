"""Judges: the model that gives verdicts, its endpoint, asking and parsing."""
