"""verify: the stage that verifies statements, with a judge (all chunks at once or one at a time) or a cross-encoder."""

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
    """Return the stage that verifies the statements of `extract_statements` against the contexts.

    Args:
        judge: judge to ask if there is no verifier.
        of: whose statements are verified, "answer" or "reference".
        verifier: cross-encoder to use instead of the judge. It always scores one sentence or chunk at a time.
        by_chunk: show the judge one chunk at a time.

    Raises:
        ConfigError: if `verifier` is neither a cross-encoder nor an `NliVerifier`.
    """
    if verifier is not None:
        return verify_by_nli(verifier, of=of)
    return verify_by_chunk(judge, of=of) if by_chunk else verify_statements(judge, of=of)
