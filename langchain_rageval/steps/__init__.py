"""Judge steps, one per file, shared by the metrics; here the classes of what they answer."""

from langchain_rageval.answers import (
    AspectVerdict,
    Classification,
    ContextVerdict,
    ContextVerdicts,
    FalseNegative,
    FalsePositive,
    NeededSentences,
    RegeneratedQuestions,
    Statements,
    TruePositive,
    Verdict,
    Verdicts,
)

__all__ = [
    "AspectVerdict",
    "Classification",
    "ContextVerdict",
    "ContextVerdicts",
    "FalseNegative",
    "FalsePositive",
    "NeededSentences",
    "RegeneratedQuestions",
    "Statements",
    "TruePositive",
    "Verdict",
    "Verdicts",
]
