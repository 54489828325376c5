"""Verify statements against the contexts: supported, contradicted or absent, with the sentences that decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import Verdict, Verdicts
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.step import State, Step, slices
from langchain_rageval.steps.votes import agreement, majority

Numbered = Mapping[int, str]
ByNumber = dict[int, Verdict]

STRENGTH: Mapping[str, int] = {"supported": 2, "contradicted": 1, "absent": 0}


class VerifyStatements(Step):
    """Adds `<of>_verdicts`, a list of Finding: one for each statement in order; with draws, agreement rates after them.

    Statements go out in slices of the judge's `max_statements`, contexts in windows of its `max_context_tokens`. Over
    windows, supported outweighs contradicted outweighs absent and the evidence is united; a statement whose support
    spans two windows is missed. Over draws the majority holds; without one the verdict is "absent".
    """

    of: Side

    def work(self, state: State) -> Operation[State]:
        """One call for each slice, window and draw; none when there is nothing to compare with."""
        sample: Sample = state["sample"]
        numbered = dict(enumerate(state[f"{self.of}_statements"], 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        found: list[Finding] = yield from self.verified(sample.question, numbered, contexts)
        return state | {f"{self.of}_verdicts": found}

    def verified(self, question: str, numbered: Numbered, contexts: NumberedContexts) -> Operation[list[Finding]]:
        """The findings on some statements against some contexts."""
        if numbered and contexts.sentences:
            voters = voters_of(self.judge)
            votes = yield Gather([self._vote(voter, question, numbered, contexts) for voter in voters])
        else:
            voters, votes = [], [{number: _absent(number) for number in numbered}]
        return list(self._findings(numbered, voters, votes))

    def _vote(self, voter: Voter, question: str, numbered: Numbered, contexts: NumberedContexts) -> Operation[ByNumber]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts = yield Gather(
            [
                self._share(voter, question, part, window)
                for part in slices(numbered, voter.judge.max_statements)
                for window in windows
            ]
        )
        verdicts: dict[int, list[Verdict]] = {number: [] for number in numbered}
        for part in parts:
            for number, verdict in part.items():
                verdicts[number].append(verdict)
        return {number: _united(given) for number, given in verdicts.items()}

    def _share(self, voter: Voter, question: str, part: Numbered, window: NumberedContexts) -> Operation[ByNumber]:
        asked = self._asked(voter, question, part, window)
        work = self._verify(voter, asked, question, part, window)
        verified: ByNumber = yield shared_question(voter.judge, asked, voter.draw, work)
        return verified

    def _verify(
        self, voter: Voter, asked: JudgeQuestion[Verdicts], question: str, part: Numbered, window: NumberedContexts
    ) -> Operation[ByNumber]:
        """Ask until every number has one verdict; once more for a verdict that cites nothing there is."""
        attempts = Attempts(voter.judge.attempts)
        settled: ByNumber = {}
        urged: set[int] = set()
        pending = part
        while pending and attempts.left:
            if pending is not part:
                asked = self._asked(voter, question, pending, window)
            try:
                answer = yield from ask_judge(voter.judge, asked, attempts, voter.draw)
            except JudgeOutputError:
                if part.keys() <= settled.keys():
                    break
                raise
            settled |= _agreed(answer.verdicts, pending, window)
            urge = {n for n in pending if n in settled and _owes_evidence(settled[n])} - urged
            urged |= urge
            pending = {n: text for n, text in part.items() if n not in settled or n in urge}
        missing = sorted(part.keys() - settled.keys())
        if missing:
            problem = f"no single verdict for the statements {missing}"
            raise JudgeOutputError(problem, self.get_name(), answer.model_dump_json())
        return settled

    def _asked(self, voter: Voter, question: str, part: Numbered, window: NumberedContexts) -> JudgeQuestion[Verdicts]:
        statements = [{"statement": number, "text": text} for number, text in part.items()]
        inputs = {"question": question, "statements": statements}
        return self.question(inputs, window, language_from=question, judge=voter.judge)

    def _findings(self, numbered: Numbered, voters: Sequence[Voter], votes: Sequence[ByNumber]) -> Iterable[Finding]:
        kind = "statement" if self.of == "answer" else "reference_statement"
        for number, text in numbered.items():
            verdict = _decided([vote[number] for vote in votes])
            yield Finding(
                kind=kind,
                number=number,
                text=text,
                verdict=verdict.verdict,
                reason=verdict.reason,
                cites=verdict.evidence,
            )
        labels = [{number: verdict.verdict for number, verdict in vote.items()} for vote in votes]
        yield from agreement(numbered, voters, labels)


def verify_statements(judge: JudgeLike, *, of: Side) -> Step:
    """The step that compares the statements of `extract_statements` with the contexts."""
    return VerifyStatements(prompt="verify_statements", judge=Judge.of(judge), answer=Verdicts, of=of)


def _agreed(given: Iterable[Verdict], asked: Numbered, window: NumberedContexts) -> ByNumber:
    """The verdicts by number: unknown numbers dropped, agreeing doubles united, conflicting ones left out."""
    by_number: dict[int, list[Verdict]] = {}
    for verdict in given:
        if verdict.statement in asked:
            cited = window.cited(verdict.evidence)
            known = verdict if cited == verdict.evidence else verdict.model_copy(update={"evidence": cited})
            by_number.setdefault(verdict.statement, []).append(known)
    return {n: _united(doubles) for n, doubles in by_number.items() if len({v.verdict for v in doubles}) == 1}


def _owes_evidence(verdict: Verdict) -> bool:
    return verdict.verdict != "absent" and not verdict.evidence


def _united(verdicts: Sequence[Verdict]) -> Verdict:
    """The strongest verdict, with the reasons and the evidence of all that say so."""
    strongest = max((verdict.verdict for verdict in verdicts), key=STRENGTH.__getitem__)
    return _joined([verdict for verdict in verdicts if verdict.verdict == strongest])


def _decided(verdicts: Sequence[Verdict]) -> Verdict:
    """What most votes say, with the reasons and the evidence of all that say so; "absent" on a tie."""
    label = majority([verdict.verdict for verdict in verdicts], tie="absent")
    return _joined([v for v in verdicts if v.verdict == label] or [_absent(verdicts[0].statement)])


def _joined(verdicts: Sequence[Verdict]) -> Verdict:
    if len(verdicts) == 1:
        return verdicts[0]
    reasons = dict.fromkeys(verdict.reason for verdict in verdicts)
    evidence = dict.fromkeys(number for verdict in verdicts for number in verdict.evidence)
    return verdicts[0].model_copy(update={"reason": " ".join(reasons), "evidence": list(evidence)})


def _absent(number: int) -> Verdict:
    return Verdict(statement=number, reason="", evidence=[], verdict="absent")
