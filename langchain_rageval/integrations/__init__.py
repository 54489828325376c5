"""Integrations with other systems, one system per file. A system is imported only when the integration is used."""
