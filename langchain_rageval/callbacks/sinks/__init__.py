"""Sinks: destinations of the rows that `RagEvalCallback` scores; users import them from `langchain_rageval.sinks`."""
