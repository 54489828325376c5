"""Models by name, and models that need no network: the offline judge, the offline writer and hashing embeddings."""
