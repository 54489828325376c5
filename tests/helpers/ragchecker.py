"""`ragchecker`: independent implementation of RAGChecker's eleven metrics, with loops over boolean tables.

Ru et al. 2024, arXiv:2408.08067, section 3.3.
"""


def mean(truths):
    """Return the share of true values; None if there are no values."""
    truths = list(truths)
    return sum(truths) / len(truths) if truths else None


def ragchecker(answer_by_chunk, reference_by_chunk, correct, covered, chunks):
    """Return the metrics by name; None where the denominator is 0.

    Args:
        answer_by_chunk: for each claim of the answer, whether each chunk entails it.
        reference_by_chunk: likewise for the reference.
        correct: whether the reference entails each claim of the answer.
        covered: whether the answer entails each claim of the reference.
        chunks: number of chunks.
    """
    relevant = [False] * chunks
    for row in reference_by_chunk:
        for chunk in range(chunks):
            relevant[chunk] = relevant[chunk] or row[chunk]
    faithful, from_relevant, from_irrelevant = [], [], []
    for row in answer_by_chunk:
        faithful.append(any(row))
        from_relevant.append(any(row[chunk] and relevant[chunk] for chunk in range(chunks)))
        from_irrelevant.append(
            any(row[chunk] and not relevant[chunk] for chunk in range(chunks)) and not from_relevant[-1]
        )
    recalled = [any(row) for row in reference_by_chunk]
    claims = range(len(answer_by_chunk))
    return {
        "precision": mean(correct),
        "recall": mean(covered),
        "f1": harmonic(mean(correct), mean(covered)),
        "context_recall": mean(recalled),
        "context_precision": mean(relevant),
        "context_utilization": mean(said for said, found in zip(covered, recalled, strict=True) if found),
        "noise_relevant": mean(from_relevant[n] and not correct[n] for n in claims),
        "noise_irrelevant": mean(from_irrelevant[n] and not correct[n] for n in claims),
        "hallucination": mean(not faithful[n] and not correct[n] for n in claims),
        "self_knowledge": mean(not faithful[n] and correct[n] for n in claims),
        "faithfulness": mean(faithful),
    }


def harmonic(precision, recall):
    """Return the harmonic mean; 0 if either value is 0, None if either is None."""
    if precision is None or recall is None:
        return None
    return 2 * precision * recall / (precision + recall) if precision and recall else 0.0
