"""Embeddings that need no network, key or model: texts become vectors of hashed word stems."""

from __future__ import annotations

import hashlib

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_rageval.data.notes import Note
from langchain_rageval.text.words import stem_of, words_of


class HashingEmbeddings(Embeddings):
    """Embeddings made by hashing word stems, so that texts with common words get similar vectors.

    The embeddings are deterministic and need no network. Like `OfflineJudge`, they serve as a baseline. The vectors
    have length 1.

    Args:
        size: number of dimensions of a vector.
    """

    def __init__(self, size: int = 512) -> None:
        self.size = size

    @property
    def report_note(self) -> str:
        """Note that is added to every report made with these embeddings."""
        return Note("offline-embeddings")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector for each text, in order; a zero vector for a blank text."""
        return [self._embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the unit vector of one text; a zero vector if the text is blank."""
        return self._embed(text)

    def _embed(self, text: str) -> list[float]:
        vector = np.zeros(self.size)
        for feature in {stem_of(word) for word in words_of(text)} or set(text.split()):
            digest = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "big")
            vector[digest % self.size] += 1.0 if digest >> 63 else -1.0
        if not vector.any() and text.strip():
            vector[len(text) % self.size] = 1.0  # the features cancelled each other out
        norm = float(np.linalg.norm(vector))
        return [float(x) for x in (vector / norm if norm else vector)]
