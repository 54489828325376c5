"""Embeddings without a model: equal texts have equal vectors, texts that share words have similar ones."""

from math import sqrt
from zlib import crc32

DIMENSIONS = 64


def vector(text: str) -> list[float]:
    """Word counts in hashed places, of length 1; a text without words has a direction of its own."""
    counts = [0.0] * DIMENSIONS
    for word in text.lower().split() or [""]:
        counts[crc32(word.encode()) % DIMENSIONS] += 1
    length = sqrt(sum(count * count for count in counts))
    return [count / length for count in counts]
