"""Sinks: destinations of the rows that `RagEvalCallback` scores; import sinks from `langchain_rageval.sinks`."""
