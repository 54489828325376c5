"""Steps about the turns of a conversation: their facts, and what later turns do with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.asking import JudgeQuestion
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, FactVerdicts, NeedVerdicts, TurnFact, TurnFacts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.run.usage import CHARACTERS_PER_TOKEN
from langchain_rageval.steps.item_step import Item, Items, ItemStep, Part, Ruling, request_items
from langchain_rageval.steps.judge_step import (
    JudgeStep,
    State,
    item_numbers,
    list_length,
    most_items,
    numbers_by_place,
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
        parts: list[TurnFacts] = yield Gather([self._list(sample.language_text, window) for window in windows])
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


KEPT, ASKED_AGAIN, IGNORED, NOT_TOUCHED = "kept", "asked again", "ignored", "not touched"
MET, WITHDRAWN, UNMET = "met", "withdrawn", "unmet"


class CheckTurns(ItemStep):
    """Step that adds `<result_name>`, a list of Finding: one for each item, then the agreement rates.

    Items are sent in slices of the judge's `max_statements`, each numbered from 1, and the turns from the first of the
    slice on in windows of its `max_context_tokens`. Over windows, the first of `labels` that was given decides; over
    votes the majority, and on a tie the last of `labels`. A verdict of `needs_turn` that names no turn is asked for
    again, once.

    Attributes:
        of: name of the list in `TurnFacts`, and of the items in the request.
        key: name of the number of an item.
        labels: the verdicts, the strongest first.
        needs_turn: verdicts that a turn decides.
        result_name: key of the findings in the state.
    """

    joins_reasons = True

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
        facts: list[TurnFact] = getattr(state["turn_facts"], self.of)
        items = {n: Item("turn", n, fact.text, self.labels, turn=fact.turn) for n, fact in enumerate(facts, 1)}
        rulings = yield from self.rule_on(sample, items, numbered_turns(sample))
        findings = [
            finding.model_copy(update={"cites": [str(item.turn), *sorted(finding.cites, key=int)]})
            for item, finding in zip(items.values(), rulings, strict=False)
        ]
        return state | {self.result_name: findings + rulings[len(items) :]}

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        windows = turn_windows(shown, judge.max_context_tokens)
        return [
            (part, window)
            for part in slices(items, judge.max_statements)
            for window in windows
            if window[-1].number > min(item.turn for item in part.values()) or len(windows) == 1
        ]

    def _question(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> JudgeQuestion[Any]:
        limits = AnswerLimits(
            items=("verdicts", self.key, item_numbers(len(items))),
            values=(("turns", tuple(turn.number for turn in shown)),),
        )
        inputs = {"turns": request_turns(shown), self.of: request_items(self.key, items)}
        return self.build_question(inputs, None, language_from=sample.language_text, judge=judge, limits=limits)

    def _key(self, verdict: Any, items: Items, shown: Any) -> Any:
        return numbers_by_place(items).get(getattr(verdict, self.key))

    def _cites(self, verdict: Any, item: Item, shown: Any) -> Sequence[str]:
        existing = {turn.number for turn in shown}
        return [str(turn) for turn in verdict.turns if turn in existing and turn > item.turn]

    def _is_unproven(self, ruling: Ruling, item: Item) -> bool:
        return ruling.label in self.needs_turn and not ruling.cites

    def _problem(self, missing: Items) -> str:
        return f"no single verdict for the {self.of} {list(missing)}"


def check_user_facts(judge: JudgeLike) -> JudgeStep:
    """Return the step that checks whether the assistant keeps to what the user stated; adds `fact_verdicts`."""
    return _check_turns(
        judge,
        "check_user_facts",
        FactVerdicts,
        of="facts",
        key="fact",
        labels=(IGNORED, ASKED_AGAIN, KEPT, NOT_TOUCHED),
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
