"""Integrations: one outside system per file, each loaded only when it is used."""
