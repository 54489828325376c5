"""Verification of statements by a judge: all chunks at once or one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.asking import JudgeQuestion, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Verdict, Verdicts
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.judge_step import (
    JudgeStep,
    NumberedTexts,
    agreement_rates,
    item_numbers,
    majority,
    mean_probabilities,
    numbers_by_place,
    request_items,
    settle_items,
    slices,
)
from langchain_rageval.steps.stage import State

_VerdictsByNumber = dict[int, Verdict]

STRENGTH: Mapping[str, int] = {"supported": 2, "contradicted": 1, "absent": 0}


class VerifyStatements(JudgeStep):
    """Step that adds `<of>_verdicts`, a list of Finding: one for each statement in order, then the agreement rates.

    Statements are sent in slices of the judge's `max_statements`, each numbered from 1, contexts in windows of its
    `max_context_tokens`. Over windows, supported outweighs contradicted, which outweighs absent, and the evidence is
    combined; a statement whose support spans two windows counts as absent. Over votes the majority decides; on a tie
    the verdict is "absent".

    A verdict "supported" or "contradicted" without an existing sentence number is asked for again, once.
    """

    of: Side

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the contexts support each statement.

        One request per slice of at most `max_statements` statements, window (part of the contexts that fits one
        request) and vote (one repetition by one judge); no call without statements or sentences.
        """
        sample: Sample = state["sample"]
        statements = dict(enumerate(state[f"{self.of}_statements"], 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        findings = yield from self._verify_all(sample.question, statements, contexts)
        return state | {f"{self.of}_verdicts": findings}

    def _verify_all(
        self, question: str, statements: NumberedTexts, contexts: NumberedContexts
    ) -> Operation[list[Finding]]:
        """Return the verdicts of all votes on statements against contexts, as findings."""
        if statements and contexts.sentences:
            voters = voters_of(self.judge)
            votes = yield Gather([self._vote(voter, question, statements, contexts) for voter in voters])
        else:
            voters, votes = [], [{number: _absent(number) for number in statements}]
        return list(self._findings(statements, voters, votes))

    def _vote(
        self, voter: Voter, question: str, statements: NumberedTexts, contexts: NumberedContexts
    ) -> Operation[_VerdictsByNumber]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts = yield Gather(
            [
                self._verify_shared(voter, question, part, window)
                for part in slices(statements, voter.judge.max_statements)
                for window in windows
            ]
        )
        verdicts: dict[int, list[Verdict]] = {number: [] for number in statements}
        for part in parts:
            for number, verdict in part.items():
                verdicts[number].append(verdict)
        return {number: _strongest(candidates) for number, candidates in verdicts.items()}

    def _verify_shared(
        self, voter: Voter, question: str, part: NumberedTexts, window: NumberedContexts
    ) -> Operation[_VerdictsByNumber]:
        def question_about(statements: NumberedTexts) -> JudgeQuestion[Verdicts]:
            return self._judge_question(voter, question, statements, window)

        judge_question = question_about(part)
        work = settle_items(
            voter,
            judge_question,
            part,
            question_about=question_about,
            read=lambda answer, statements: _consistent(answer.verdicts, statements, window),
            lacks_evidence=_lacks_evidence,
            names="statements",
        )
        verdicts: _VerdictsByNumber = yield shared_question(voter.judge, judge_question, voter.draw, work, part)
        return verdicts

    def _judge_question(
        self, voter: Voter, question: str, part: NumberedTexts, window: NumberedContexts
    ) -> JudgeQuestion[Verdicts]:
        inputs = {"question": question, "statements": request_items("statement", part)}
        limits = AnswerLimits(
            items=("verdicts", "statement", item_numbers(len(part))), values=(("evidence", tuple(window.sentences)),)
        )
        return self.build_question(inputs, window, language_from=question, judge=voter.judge, limits=limits)

    def _findings(
        self, statements: NumberedTexts, voters: Sequence[Voter], votes: Sequence[_VerdictsByNumber]
    ) -> Iterable[Finding]:
        kind = "statement" if self.of == "answer" else "reference_statement"
        for number, text in statements.items():
            of_votes = [vote[number] for vote in votes]
            verdict = _majority_verdict(of_votes)
            yield Finding(
                kind=kind,
                number=number,
                text=text,
                verdict=verdict.verdict,
                reason=verdict.reason,
                cites=verdict.evidence,
                probabilities=mean_probabilities(of_votes, "verdict"),
            )
        labels = [{number: verdict.verdict for number, verdict in vote.items()} for vote in votes]
        yield from agreement_rates(statements, voters, labels)


def verify_statements(judge: JudgeLike, *, of: Side) -> JudgeStep:
    """Return the step that verifies the statements of `extract_statements` against the contexts."""
    return VerifyStatements(prompt="verify_statements", judge=Judge.of(judge), answer=Verdicts, of=of)


def _consistent(verdicts: Iterable[Verdict], statements: NumberedTexts, window: NumberedContexts) -> _VerdictsByNumber:
    """Return the verdicts of a reply by the statements' own numbers, with existing sentence numbers as evidence.

    Unknown statement numbers are dropped, agreeing duplicates are combined, conflicting ones are omitted.
    """
    numbers = numbers_by_place(statements)
    by_number: dict[int, list[Verdict]] = {}
    for verdict in verdicts:
        if number := numbers.get(verdict.statement):
            known = {"statement": number, "evidence": window.resolve(verdict.evidence)}
            by_number.setdefault(number, []).append(verdict.model_copy(update=known))
    return {n: _strongest(doubles) for n, doubles in by_number.items() if len({v.verdict for v in doubles}) == 1}


def _lacks_evidence(verdict: Verdict) -> bool:
    return verdict.verdict != "absent" and not verdict.evidence


def _strongest(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the strongest verdict over several windows, with the reasons and evidence of all equal verdicts.

    "supported" is stronger than "contradicted", which is stronger than "absent".
    """
    strongest = max((verdict.verdict for verdict in verdicts), key=STRENGTH.__getitem__)
    return _combine([verdict for verdict in verdicts if verdict.verdict == strongest])


def _majority_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the majority verdict of several votes, "absent" on a tie, with reasons and evidence of equal verdicts."""
    label = majority([verdict.verdict for verdict in verdicts], tie="absent")
    return _combine([v for v in verdicts if v.verdict == label] or [_absent(verdicts[0].statement)])


def _combine(verdicts: Sequence[Verdict]) -> Verdict:
    if len(verdicts) == 1:
        return verdicts[0]
    reasons = dict.fromkeys(verdict.reason for verdict in verdicts)
    evidence = dict.fromkeys(number for verdict in verdicts for number in verdict.evidence)
    return verdicts[0].model_copy(update={"reason": " ".join(reasons), "evidence": list(evidence)})


def _absent(number: int) -> Verdict:
    return Verdict(statement=number, reason="", evidence=[], verdict="absent")


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
