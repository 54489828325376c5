"""Modules that load prompts (one YAML file per step and language), define answer schemas, and lay out requests."""
