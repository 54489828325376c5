"""Prompts (one YAML file per step and language), answer schemas, and the layout of requests."""
