"""Verify statements by whoever is to do it: the judge, over all chunks or chunk by chunk, or a cross-encoder."""

from __future__ import annotations

from langchain_core.cross_encoders import BaseCrossEncoder

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.verify_by_chunk import verify_by_chunk
from langchain_rageval.steps.verify_by_nli import NliVerifier, verify_by_nli
from langchain_rageval.steps.verify_statements import verify_statements

Verifier = BaseCrossEncoder | NliVerifier


def verify(judge: JudgeLike, *, of: Side, verifier: Verifier | None = None, by_chunk: bool = False) -> Stage[State]:
    """The stage that compares the statements of `extract_statements` with the contexts.

    Args:
        judge: who is asked when there is no verifier.
        of: the "answer" or the "reference".
        verifier: a cross-encoder in the judge's place. It sees one sentence or chunk at a time in any case.
        by_chunk: whether the judge is shown one chunk at a time.

    Raises:
        ConfigError: if the verifier is none.
    """
    if verifier is not None:
        return verify_by_nli(verifier, of=of)
    return verify_by_chunk(judge, of=of) if by_chunk else verify_statements(judge, of=of)
