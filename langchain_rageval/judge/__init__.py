"""Judges: the models that give verdicts, their endpoints, and how they are asked and their replies parsed."""
