"""Models by name, and models without network access: offline judge, offline writer, hashing embeddings."""
