"""Command-line interface `rageval`."""
