"""Ranking measures as functions of relevance grades: NDCG, MRR, average precision, precision, recall and hit rate."""

from langchain_rageval.statistics.ranking import average_precision, hit_rate, mrr, ndcg, precision, recall

__all__ = ["average_precision", "hit_rate", "mrr", "ndcg", "precision", "recall"]
