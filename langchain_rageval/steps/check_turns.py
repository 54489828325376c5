"""Steps about the turns of a conversation: their facts, and what later turns do with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.asking import JudgeQuestion, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, FactVerdicts, NeedVerdicts, TurnFact, TurnFacts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.run.usage import CHARACTERS_PER_TOKEN
from langchain_rageval.steps.judge_step import (
    JudgeStep,
    State,
    agreement_rates,
    item_numbers,
    list_length,
    majority,
    most_items,
    numbers_by_place,
    settle_items,
    slices,
)
from langchain_rageval.steps.statement_checks import statement_key

_CHARACTERS_BESIDE_TEXT = 40  # of a turn in JSON: keys, number and role


class NumberedTurn(NamedTuple):
    """Message of the user or the assistant; numbers count from 1 over the whole conversation."""

    number: int
    role: str
    text: str


def numbered_turns(sample: Sample) -> list[NumberedTurn]:
    """Return the conversation up to and including a sample: its history, its question and its answer."""
    said = [(turn.role, turn.text) for turn in sample.history]
    said += [("user", sample.question), ("assistant", sample.answer or "")]
    return [NumberedTurn(number, role, text) for number, (role, text) in enumerate(said, 1)]


def request_turns(turns: Sequence[NumberedTurn]) -> list[dict[str, Any]]:
    """Return turns as the items of a request. They keep their numbers, also in a part of a conversation."""
    return [{"turn": turn.number, "role": turn.role, "text": turn.text} for turn in turns]


def turn_windows(turns: Sequence[NumberedTurn], max_tokens: int | None) -> list[list[NumberedTurn]]:
    """Split a conversation between turns into windows of at most `max_tokens` (characters / 4).

    A turn that is longer than that gets its own window. None does not split.
    """
    if max_tokens is None:
        return [list(turns)]
    windows: list[list[NumberedTurn]] = []
    size = 0.0
    for turn in turns:
        tokens = (len(turn.text) + _CHARACTERS_BESIDE_TEXT) / CHARACTERS_PER_TOKEN
        if not windows or size + tokens > max_tokens:
            windows.append([])
            size = 0.0
        windows[-1].append(turn)
        size += tokens
    return windows


_ROLES = {"statements": "assistant", "facts": "user", "needs": "user"}


class ListTurnFacts(JudgeStep):
    """Step that adds `turn_facts`, a `TurnFacts`."""

    def work(self, state: State) -> Operation[State]:
        """Ask the judge (the first judge of a jury) what the turns say.

        One request per window (consecutive turns that fit one request); no call for a sample without history.
        """
        sample: Sample = state["sample"]
        turns = numbered_turns(sample) if sample.history else []
        windows = turn_windows(turns, self.judge.members[0].max_context_tokens) if turns else []
        parts: list[TurnFacts] = yield Gather([self._list(sample.question, window) for window in windows])
        lists = {
            name: _distinct(fact for part in parts for fact in getattr(part, name))[: _most_facts(turns, role)]
            for name, role in _ROLES.items()
        }
        return state | {"turn_facts": TurnFacts(**lists)}

    def _list(self, question: str, window: Sequence[NumberedTurn]) -> Operation[TurnFacts]:
        numbers = tuple(turn.number for turn in window)
        lengths = tuple((name, _longest_list(window, role)) for name, role in _ROLES.items())
        objection = partial(_misplaced, roles={turn.number: turn.role for turn in window})
        judge_question = self.build_question(
            {"turns": request_turns(window)},
            None,
            language_from=question,
            objection=objection,
            limits=AnswerLimits(values=(("turn", numbers),), lengths=lengths),
        )
        reply: TurnFacts = yield self.ask(judge_question)
        return reply


def list_turn_facts(judge: JudgeLike) -> JudgeStep:
    """Return the step that lists what the turns of a conversation say."""
    return ListTurnFacts(prompt="list_turn_facts", judge=Judge.of(judge), answer=TurnFacts)


def _misplaced(reply: TurnFacts, *, roles: dict[int, str]) -> str | None:
    """Return an error message for the judge about the first item whose turn cannot have said it, else None."""
    for name, role in _ROLES.items():
        for fact in getattr(reply, name):
            if roles.get(fact.turn) != role:
                own = ", ".join(str(number) for number, other in roles.items() if other == role) or "none"
                return f"`{name}` are of turns of the {role} ({own}), but {fact.text!r} is listed with turn {fact.turn}"
    return None


def _distinct(facts: Iterable[TurnFact]) -> list[TurnFact]:
    """Return the facts in the order of their turns, without blank ones and repeats within a turn."""
    kept = {(fact.turn, statement_key(fact.text)): fact for fact in facts if fact.text.strip()}
    return sorted(kept.values(), key=lambda fact: fact.turn)


def _text_of(turns: Iterable[NumberedTurn], role: str) -> str:
    return "".join(turn.text for turn in turns if turn.role == role)


def _most_facts(turns: Sequence[NumberedTurn], role: str) -> int:
    return most_items(_text_of(turns, role))


def _longest_list(turns: Sequence[NumberedTurn], role: str) -> int:
    return list_length(_text_of(turns, role))


KEPT, ASKED_AGAIN, IGNORED = "kept", "asked again", "ignored"
MET, WITHDRAWN, UNMET = "met", "withdrawn", "unmet"

_Facts = Mapping[int, TurnFact]
_Turns = Sequence[NumberedTurn]


@dataclass(frozen=True)
class _Verdict:
    """Verdict on one item: its label, the reason and the numbers of the turns that decide."""

    label: str
    reason: str
    turns: tuple[int, ...] = ()


_Verdicts = dict[int, _Verdict]


class CheckTurns(JudgeStep):
    """Step that adds `<result_name>`, a list of Finding: one for each item, then the agreement rates.

    Items are sent in slices of the judge's `max_statements`, each numbered from 1, and the turns from the first of the
    slice on in windows of its `max_context_tokens`. Over windows, the first of `labels` that was given decides; over
    votes the majority, and on a tie the last of `labels`. A verdict other than the last label that names no turn is
    asked for again, once.

    Attributes:
        of: name of the list in `TurnFacts`, and of the items in the request.
        key: name of the number of an item.
        labels: the verdicts, the strongest first.
        needs_turn: verdicts that a turn decides.
        result_name: key of the findings in the state.
    """

    of: str
    key: str
    labels: tuple[str, ...]
    needs_turn: frozenset[str]
    result_name: str

    def work(self, state: State) -> Operation[State]:
        """Ask the judge about each item.

        One request per slice of at most `max_statements` items, window (consecutive turns that fit one request) and
        vote (one repetition by one judge); no call without items.
        """
        sample: Sample = state["sample"]
        listed: TurnFacts = state["turn_facts"]
        items = dict(enumerate(getattr(listed, self.of), 1))
        voters = voters_of(self.judge) if items else []
        turns = numbered_turns(sample)
        votes: list[_Verdicts] = yield Gather([self._vote(voter, sample.question, items, turns) for voter in voters])
        texts = {number: item.text for number, item in items.items()}
        labels = [{number: verdict.label for number, verdict in vote.items()} for vote in votes]
        findings = [self._finding(number, item, [vote[number] for vote in votes]) for number, item in items.items()]
        return state | {self.result_name: [*findings, *agreement_rates(texts, voters, labels)]}

    def _vote(self, voter: Voter, question: str, items: _Facts, turns: _Turns) -> Operation[_Verdicts]:
        judge = voter.judge
        windows = turn_windows(turns, judge.max_context_tokens)
        requests = [
            (part, window)
            for part in slices(items, judge.max_statements)
            for window in windows
            if window[-1].number > min(item.turn for item in part.values()) or len(windows) == 1
        ]
        parts = yield Gather([self._check_shared(voter, question, part, window) for part, window in requests])
        given: dict[int, list[_Verdict]] = {number: [] for number in items}
        for part in parts:
            for number, verdict in part.items():
                given[number].append(verdict)
        return {number: self._strongest(verdicts) for number, verdicts in given.items()}

    def _check_shared(self, voter: Voter, question: str, part: _Facts, window: _Turns) -> Operation[_Verdicts]:
        def question_about(items: _Facts) -> JudgeQuestion[Any]:
            return self._judge_question(voter, question, items, window)

        judge_question = question_about(part)
        work = settle_items(
            voter,
            judge_question,
            part,
            question_about=question_about,
            read=lambda answer, items: self._consistent(answer, items, window),
            lacks_evidence=self._lacks_turn,
            names=self.of,
        )
        verdicts: _Verdicts = yield shared_question(voter.judge, judge_question, voter.draw, work, part)
        return verdicts

    def _judge_question(self, voter: Voter, question: str, part: _Facts, window: _Turns) -> JudgeQuestion[Any]:
        items = [{self.key: place, "turn": item.turn, "text": item.text} for place, item in enumerate(part.values(), 1)]
        limits = AnswerLimits(
            items=("verdicts", self.key, item_numbers(len(part))),
            values=(("turns", tuple(turn.number for turn in window)),),
        )
        inputs = {"turns": request_turns(window), self.of: items}
        return self.build_question(inputs, None, language_from=question, judge=voter.judge, limits=limits)

    def _consistent(self, answer: Any, part: _Facts, window: _Turns) -> _Verdicts:
        """Return the verdicts of a reply by the items' own numbers, with existing turns after the item.

        Unknown items are dropped, agreeing duplicates are combined, conflicting ones are omitted.
        """
        numbers, existing = numbers_by_place(part), {turn.number for turn in window}
        by_number: dict[int, list[_Verdict]] = {}
        for verdict in answer.verdicts:
            if number := numbers.get(getattr(verdict, self.key)):
                turns = tuple(turn for turn in verdict.turns if turn in existing and turn > part[number].turn)
                by_number.setdefault(number, []).append(_Verdict(verdict.verdict, verdict.reason, turns))
        return {n: _combine(doubles) for n, doubles in by_number.items() if len({v.label for v in doubles}) == 1}

    def _lacks_turn(self, verdict: _Verdict) -> bool:
        return verdict.label in self.needs_turn and not verdict.turns

    def _strongest(self, verdicts: Sequence[_Verdict]) -> _Verdict:
        """Return the verdict over several windows, with the reasons and turns of all equal verdicts."""
        strongest = min((verdict.label for verdict in verdicts), key=self.labels.index)
        return _combine([verdict for verdict in verdicts if verdict.label == strongest])

    def _finding(self, number: int, item: TurnFact, verdicts: Sequence[_Verdict]) -> Finding:
        label = majority([verdict.label for verdict in verdicts], tie=self.labels[-1])
        agreeing = [verdict for verdict in verdicts if verdict.label == label] or [_Verdict(label, "")]
        verdict = _combine(agreeing)
        return Finding(
            kind="turn",
            number=number,
            text=item.text,
            verdict=label,
            reason=verdict.reason,
            cites=[str(turn) for turn in (item.turn, *sorted(verdict.turns))],
        )


def check_user_facts(judge: JudgeLike) -> JudgeStep:
    """Return the step that checks whether the assistant keeps to what the user stated; adds `fact_verdicts`."""
    return _check_turns(
        judge,
        "check_user_facts",
        FactVerdicts,
        of="facts",
        key="fact",
        labels=(IGNORED, ASKED_AGAIN, KEPT),
        needs_turn=frozenset({IGNORED, ASKED_AGAIN}),
        result_name="fact_verdicts",
    )


def check_needs(judge: JudgeLike) -> JudgeStep:
    """Return the step that checks whether the user's needs were met; adds `need_verdicts`."""
    return _check_turns(
        judge,
        "check_needs",
        NeedVerdicts,
        of="needs",
        key="need",
        labels=(MET, WITHDRAWN, UNMET),
        needs_turn=frozenset({MET, WITHDRAWN}),
        result_name="need_verdicts",
    )


def _check_turns(judge: JudgeLike, prompt: str, answer: type[BaseModel], **options: Any) -> JudgeStep:
    return CheckTurns(prompt=prompt, judge=Judge.of(judge), answer=answer, **options)


def _combine(verdicts: Iterable[_Verdict]) -> _Verdict:
    """Return equal verdicts as one, with their different reasons and turns."""
    given = list(verdicts)
    reasons = dict.fromkeys(verdict.reason for verdict in given if verdict.reason)
    turns = dict.fromkeys(turn for verdict in given for turn in verdict.turns)
    return _Verdict(given[0].label, " ".join(reasons), tuple(turns))
