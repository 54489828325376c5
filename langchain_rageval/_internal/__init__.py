"""General building blocks that know nothing about RAG: per-process values, caches, an SQLite file, HTML, plots."""
