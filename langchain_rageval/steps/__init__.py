"""Judge steps, one per file, shared by the metrics; here the classes of what they answer."""

from langchain_rageval.answers import Statements, Verdict, Verdicts

__all__ = ["Statements", "Verdict", "Verdicts"]
