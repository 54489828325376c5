"""Verification of statements by a judge: all chunks at once or one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, FindingKind, Sample
from langchain_rageval.judge.asking import JudgeQuestion
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Verdicts
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.item_step import Item, Items, ItemStep, numbered_items, request_items
from langchain_rageval.steps.judge_step import item_numbers
from langchain_rageval.steps.stage import State

_LABELS = ("supported", "contradicted", "absent")


class VerifyStatements(ItemStep):
    """Step that adds `<of>_verdicts`, a list of Finding: one for each statement in order, then the agreement rates.

    Over windows, supported outweighs contradicted, which outweighs absent, and the evidence is combined; a statement
    whose support spans two windows counts as absent. Over votes the majority decides; on a tie the verdict is "absent".

    A verdict "supported" or "contradicted" without an existing sentence number is asked for again, once.
    """

    items_name = "statements"
    number_field = "statement"
    is_proved = True
    joins_reasons = True

    of: Side

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the contexts support each statement.

        One request per slice of at most `max_statements` statements, window (part of the contexts that fits one
        request) and vote (one repetition by one judge); no call without statements or sentences.
        """
        sample: Sample = state["sample"]
        kind: FindingKind = "statement" if self.of == "answer" else "reference_statement"
        statements = numbered_items(state[f"{self.of}_statements"], kind, _LABELS)
        findings = yield from self.rule_on(sample, statements, NumberedContexts.of(sample.contexts or []))
        return state | {f"{self.of}_verdicts": findings}

    def _question(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> JudgeQuestion[Any]:
        inputs = {"question": sample.question, "statements": request_items("statement", items)}
        limits = AnswerLimits(
            items=("verdicts", "statement", item_numbers(len(items))), values=(("evidence", tuple(shown.sentences)),)
        )
        return self.build_question(inputs, shown, language_from=sample.language_text, judge=judge, limits=limits)

    def _cites(self, verdict: Any, item: Item, shown: Any) -> Sequence[str]:
        return shown.resolve(verdict.evidence)  # type: ignore[no-any-return]


def verify_statements(judge: JudgeLike, *, of: Side) -> VerifyStatements:
    """Return the step that verifies the statements of `extract_statements` against the contexts."""
    return VerifyStatements(prompt="verify_statements", judge=Judge.of(judge), answer=Verdicts, of=of)


class VerifyByChunk(VerifyStatements):
    """Step that adds `<of>_verdicts` as VerifyStatements does, with citations from every deciding chunk.

    Over chunks, supported outweighs contradicted, which outweighs absent. A verdict without citations cites all
    sentences of its chunk, because the judge saw nothing else. Of the agreement rates of the chunks, the lowest is
    kept.
    """

    def rule_on(self, sample: Sample, items: Items, shown: Any = None) -> Operation[list[Finding]]:
        """Ask the judge to verify the statements against one chunk at a time, as for whole contexts."""
        chunks = [shown.select({line.chunk}) for line in shown.lines if line.sentence == 1] or [shown]
        rule_on = super().rule_on
        findings: list[list[Finding]] = yield Gather([rule_on(sample, items, chunk) for chunk in chunks])
        return list(_merge_chunks(chunks, findings))

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
        verdict = min((finding.verdict for finding in by_chunk), key=_LABELS.index)
        deciding = [(chunk, f) for chunk, f in zip(chunks, by_chunk, strict=True) if f.verdict == verdict]
        cites = [n for chunk, f in deciding for n in f.cites or chunk.sentences] if verdict != "absent" else []
        reasons = dict.fromkeys(finding.reason for _, finding in deciding)
        yield deciding[0][1].model_copy(update={"verdict": verdict, "reason": " ".join(reasons), "cites": cites})
