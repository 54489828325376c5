"""General building blocks that know nothing about RAG, such as caches, an SQLite file, HTML and plots."""
