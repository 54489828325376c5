"""Prompts: one YAML file per step and language, and how a request is laid out from them."""
