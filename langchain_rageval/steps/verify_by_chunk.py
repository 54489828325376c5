"""Verify statements against one chunk at a time, so that it is known of each chunk what it supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import Verdicts
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.step import State
from langchain_rageval.steps.verify_statements import STRENGTH, VerifyStatements


class VerifyByChunk(VerifyStatements):
    """Adds what VerifyStatements adds; a statement cites each chunk that decides it.

    Over chunks, supported outweighs contradicted outweighs absent. A verdict that cites nothing cites all of its chunk,
    which is all that the judge was shown. Of the agreement between draws it keeps the least.
    """

    def work(self, state: State) -> Operation[State]:
        """One call for each chunk, and for each slice, window and draw of it."""
        sample: Sample = state["sample"]
        numbered = dict(enumerate(state[f"{self.of}_statements"], 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        chunks = [contexts.only({line.chunk}) for line in contexts.lines if line.sentence == 1] or [contexts]
        found: list[list[Finding]] = yield Gather([self.verified(sample.question, numbered, chunk) for chunk in chunks])
        return state | {f"{self.of}_verdicts": list(_over(chunks, found))}

    @property
    def instrument(self) -> dict[str, Any]:
        """That of the step, and that chunks are judged one by one."""
        return {**super().instrument, "by_chunk": True}


def verify_by_chunk(judge: JudgeLike, *, of: Side) -> VerifyByChunk:
    """The step that compares the statements of `extract_statements` with each chunk alone."""
    return VerifyByChunk(prompt="verify_statements", judge=Judge.of(judge), answer=Verdicts, of=of)


def _over(chunks: Sequence[NumberedContexts], found: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """The findings of all chunks as one for each statement, then the agreement."""
    for same in zip(*found, strict=True):
        if same[0].kind == "agreement":
            chunk, least = min(zip(chunks, same, strict=True), key=lambda pair: float(pair[1].verdict))
            yield least.model_copy(update={"reason": f"[{chunk.lines[0].chunk}] {least.reason}"})
            continue
        verdict = max((finding.verdict for finding in same), key=STRENGTH.__getitem__)
        deciding = [(chunk, f) for chunk, f in zip(chunks, same, strict=True) if f.verdict == verdict]
        cites = [n for chunk, f in deciding for n in f.cites or chunk.sentences] if verdict != "absent" else []
        reasons = dict.fromkeys(finding.reason for _, finding in deciding)
        yield same[0].model_copy(update={"verdict": verdict, "reason": " ".join(reasons), "cites": cites})
