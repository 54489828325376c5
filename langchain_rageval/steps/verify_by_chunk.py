"""Verify statements against one chunk at a time.

The judge is asked the question of `verify_statements` once for each chunk, so that each verdict cites every chunk that
decides it. Reads and adds the same state as that step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import Verdicts
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.judge_step import State
from langchain_rageval.steps.verify_statements import STRENGTH, VerifyStatements


class VerifyByChunk(VerifyStatements):
    """Step that adds `<of>_verdicts` as VerifyStatements does, with citations from every deciding chunk.

    Over chunks, supported outweighs contradicted, which outweighs absent. A verdict without citations cites all
    sentences of its chunk, because the judge saw nothing else. Of the agreement rates of the chunks, the lowest is
    kept.
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge to verify the statements against one chunk at a time.

        One request per chunk, slice of at most `max_statements` statements, window (part of the chunk that fits one
        request) and vote (one repetition by one judge).
        """
        sample: Sample = state["sample"]
        statements = dict(enumerate(state[f"{self.of}_statements"], 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        chunks = [contexts.select({line.chunk}) for line in contexts.lines if line.sentence == 1] or [contexts]
        findings: list[list[Finding]] = yield Gather(
            [self._verify_all(sample.question, statements, chunk) for chunk in chunks]
        )
        return state | {f"{self.of}_verdicts": list(_merge_chunks(chunks, findings))}

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its verdicts: that of VerifyStatements, and `by_chunk`."""
        return {**super().instrument, "by_chunk": True}


def verify_by_chunk(judge: JudgeLike, *, of: Side) -> VerifyByChunk:
    """Return the step that verifies the statements of `extract_statements` against each chunk separately."""
    return VerifyByChunk(prompt="verify_statements", judge=Judge.of(judge), answer=Verdicts, of=of)


def _merge_chunks(chunks: Sequence[NumberedContexts], findings: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """Merge the findings of all chunks into one for each statement, then one agreement rate for each statement."""
    for by_chunk in zip(*findings, strict=True):
        if by_chunk[0].kind == "agreement":
            chunk, lowest = min(zip(chunks, by_chunk, strict=True), key=lambda pair: float(pair[1].verdict))
            yield lowest.model_copy(update={"reason": f"[{chunk.lines[0].chunk}] {lowest.reason}"})
            continue
        verdict = max((finding.verdict for finding in by_chunk), key=STRENGTH.__getitem__)
        deciding = [(chunk, f) for chunk, f in zip(chunks, by_chunk, strict=True) if f.verdict == verdict]
        cites = [n for chunk, f in deciding for n in f.cites or chunk.sentences] if verdict != "absent" else []
        reasons = dict.fromkeys(finding.reason for _, finding in deciding)
        yield deciding[0][1].model_copy(update={"verdict": verdict, "reason": " ".join(reasons), "cites": cites})
