"""Models by name, and models that need no network: the offline judge, the offline writer, hashing embeddings."""
