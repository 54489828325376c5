"""Integrations with other systems, one per file; each loads its system only when it is used."""
