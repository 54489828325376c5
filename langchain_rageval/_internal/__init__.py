"""General building blocks without knowledge of RAG: values per process, caches, an SQLite file, HTML, plots."""
