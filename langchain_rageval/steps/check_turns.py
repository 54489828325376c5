"""Steps about a conversation: list the facts that its turns state, and check what later turns do with each fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

from pydantic import BaseModel

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import (
    AnswerLimits,
    Contradictions,
    FactVerdicts,
    NeedVerdicts,
    TurnFact,
    TurnFacts,
)
from langchain_rageval.prompts.layout import split_by_size
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.run.usage import CHARACTERS_PER_TOKEN
from langchain_rageval.steps.extract_statements import statement_key
from langchain_rageval.steps.item_step import Item, Items, ItemStep, Part, Ruling, request_items, slices
from langchain_rageval.steps.judge_step import JudgeStep, list_length, most_items
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.votes import agreement_rates, majority

_CHARACTERS_BESIDE_TEXT = 40  # of a turn in JSON: keys, number and role


class NumberedTurn(NamedTuple):
    """Message of the user or the assistant, with its number in the whole conversation, from 1."""

    number: int
    role: str
    text: str


def numbered_turns(sample: Sample) -> list[NumberedTurn]:
    """Return the turns of a conversation up to and including a sample: its history, question and answer."""
    said = [(turn.role, turn.text) for turn in sample.history]
    said += [("user", sample.question), ("assistant", sample.answer or "")]
    return [NumberedTurn(number, role, text) for number, (role, text) in enumerate(said, 1)]


def request_turns(turns: Sequence[NumberedTurn]) -> list[dict[str, Any]]:
    """Return turns as items of a request, such as `{"turn": 1, "role": "user", "text": "Hi"}`.

    "turn" is the number of the turn in the whole conversation.
    """
    return [{"turn": turn.number, "role": turn.role, "text": turn.text} for turn in turns]


def turn_windows(turns: Sequence[NumberedTurn], max_tokens: int | None) -> list[list[NumberedTurn]]:
    """Split a conversation between turns into windows of at most `max_tokens`; four characters count as one token.

    A turn that is longer than `max_tokens` gets its own window. With None, there is one window.
    """
    return [list(turns)] if max_tokens is None else split_by_size(turns, _characters, max_tokens)


def _characters(part: NumberedTurn | Item) -> int:
    return len(part.text) + _CHARACTERS_BESIDE_TEXT


_ROLES = {"statements": "assistant", "facts": "user", "needs": "user"}


class ListTurnFacts(JudgeStep):
    """Step that adds `turn_facts`, a TurnFacts with the lists `statements`, `facts` and `needs`.

    `statements` are the assistant's, `facts` and `needs` the user's. Each element has a `text` and the number of its
    `turn` in the conversation.
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge (the first of a jury) for the statements, facts and needs, and add them as `turn_facts`.

        Makes one request per window (consecutive turns that fit one request); none for a sample without history.
        """
        sample: Sample = state["sample"]
        turns = numbered_turns(sample) if sample.history else []
        windows = turn_windows(turns, self.judge.members[0].max_context_tokens) if turns else []
        parts: list[TurnFacts] = yield Gather([self._list(sample.language_text, window) for window in windows])
        lists = {
            name: _distinct(fact for part in parts for fact in getattr(part, name))[: most_items(_text_of(turns, role))]
            for name, role in _ROLES.items()
        }
        return state | {"turn_facts": TurnFacts(**lists)}

    def _list(self, question: str, window: Sequence[NumberedTurn]) -> Operation[TurnFacts]:
        numbers = tuple(turn.number for turn in window)
        lengths = tuple((name, list_length(_text_of(window, role))) for name, role in _ROLES.items())
        objection = partial(_misplaced, roles={turn.number: turn.role for turn in window})
        limits = AnswerLimits(values=(("turn", numbers),), lengths=lengths)
        inputs = {"turns": request_turns(window)}
        return self._answer(inputs, None, language_from=question, objection=objection, limits=limits)


def list_turn_facts(judge: JudgeLike) -> JudgeStep:
    """Return the step that lists the assistant's statements, and the facts and needs of the user, with their turns."""
    return ListTurnFacts(prompt="list_turn_facts", judge=judge, answer=TurnFacts)


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


KEPT, ASKED_AGAIN, IGNORED, NOT_TOUCHED = "kept", "asked again", "ignored", "not touched"
MET, WITHDRAWN, UNMET = "met", "withdrawn", "unmet"


class CheckTurns(ItemStep):
    """Step that adds the list `<result_name>`: a Finding per item, then the agreement rates of the votes.

    A request holds at most `max_statements` items, numbered from 1, and a window of turns of at most
    `max_context_tokens`; both limits are options of the judge. Only turns after the turn that states an item can decide
    its verdict. If there are several windows, those that end at or before the turn of the request's earliest item are
    therefore not sent. If windows give an item different verdicts, the strongest counts. Over votes the majority
    decides; without a majority, the last of `labels` counts. If a verdict of `needs_turn` names no turn, the judge is
    asked again, once; a valid second verdict replaces the first, even if it names no turn either.

    Attributes:
        of: name of the items, both in `TurnFacts` and in the request.
        key: name of the field that holds the number of an item.
        labels: the verdicts, the strongest first.
        needs_turn: verdicts that must name the turn that decides them.
        result_name: key of the findings in the state.
    """

    joins_reasons = True

    of: str
    key: str
    labels: tuple[str, ...]
    needs_turn: frozenset[str]
    result_name: str

    def work(self, state: State) -> Operation[State]:
        """Ask the judge for a verdict on each item (a fact or a need of the user), and add the findings to the state.

        Makes one request per slice (at most `max_statements` items), window (consecutive turns that fit one request)
        and vote (one repetition by one judge); no request if there are no items.
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

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"turns": request_turns(shown), self.of: request_items(self.key, items)}

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        numbers, turns = tuple(range(1, len(items) + 1)), tuple(turn.number for turn in shown)
        return AnswerLimits(("verdicts", self.key, numbers), values=(("turns", turns),))

    def _key(self, verdict: Any, items: Items, shown: Any) -> Any:
        return dict(enumerate(items, 1)).get(getattr(verdict, self.key))

    def _cites(self, verdict: Any, item: Item, shown: Any) -> Sequence[str]:
        existing = {turn.number for turn in shown}
        return [str(turn) for turn in verdict.turns if turn in existing and turn > item.turn]

    def _is_unproven(self, ruling: Ruling, item: Item) -> bool:
        return ruling.label in self.needs_turn and not ruling.cites

    def _problem(self, missing: Items) -> str:
        return f"no single verdict for the {self.of} {list(missing)}"


def _check_turns(
    judge: JudgeLike, what: str, key: str, answer: type[BaseModel], labels: tuple[str, ...], needs_turn: set[str]
) -> CheckTurns:
    return CheckTurns(
        prompt=f"check_{what}",
        judge=judge,
        answer=answer,
        of=f"{key}s",
        key=key,
        labels=labels,
        needs_turn=frozenset(needs_turn),
        result_name=f"{key}_verdicts",
    )


def check_user_facts(judge: JudgeLike) -> CheckTurns:
    """Return the step that checks whether the assistant respects the facts stated by the user; adds `fact_verdicts`."""
    labels = (IGNORED, ASKED_AGAIN, KEPT, NOT_TOUCHED)
    return _check_turns(judge, "user_facts", "fact", FactVerdicts, labels, {IGNORED, ASKED_AGAIN})


def check_needs(judge: JudgeLike) -> CheckTurns:
    """Return the step that checks whether the user's needs were met; adds `need_verdicts`."""
    return _check_turns(judge, "needs", "need", NeedVerdicts, (MET, WITHDRAWN, UNMET), {MET, WITHDRAWN})


CONSISTENCY = CONTRADICTED, CONSISTENT = "contradicted", "consistent"

_FEWEST_PAIRS = 10  # that a judge may list

_Pairs = dict[tuple[int, int], str]


class FindContradictions(JudgeStep):
    """Step that adds the list `consistency_verdicts`: a Finding per statement, then the agreement rates of the votes.

    The verdict is "contradicted" if another statement contradicts the statement, else "consistent". If all statements
    together exceed the judge's `max_context_tokens`, the list is split into blocks, and each request compares two
    blocks. A contradicting pair counts if more than half of the votes name it. Pairs within one turn are dropped.
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which statements contradict each other, and add the findings to the state.

        Makes one request per vote (one repetition by one judge). If the statements together exceed the judge's
        `max_context_tokens`, they are split into blocks of half that size, and each vote needs one request per pair of
        blocks. Makes no request if fewer than two turns state anything.
        """
        sample: Sample = state["sample"]
        facts: TurnFacts = state["turn_facts"]
        items = {n: Item("turn", n, one.text, CONSISTENCY, turn=one.turn) for n, one in enumerate(facts.statements, 1)}
        several_turns = len({item.turn for item in items.values()}) > 1
        voters = voters_of(self.judge) if several_turns else []
        votes: list[_Pairs] = yield Gather([self._vote(voter, sample.language_text, items) for voter in voters])
        found = {pair: reason for vote in reversed(votes) for pair, reason in vote.items()}
        counted = [pair for pair in sorted(found) if majority([pair in vote for vote in votes], False)]
        texts = {number: item.text for number, item in items.items()}
        labels = [{finding.number: finding.verdict for finding in _findings(items, vote)} for vote in votes]
        findings = [*_findings(items, {pair: found[pair] for pair in counted}), *agreement_rates(texts, voters, labels)]
        return state | {"consistency_verdicts": findings}

    def _vote(self, voter: Voter, question: str, items: Items) -> Operation[_Pairs]:
        blocks = _blocks(items, voter.judge.max_context_tokens)
        requests = [items] if len(blocks) == 1 else [one | other for one, other in combinations(blocks, 2)]
        parts: list[_Pairs] = yield Gather([self._compare(voter, question, part) for part in requests])
        return {pair: reason for part in parts for pair, reason in part.items()}

    def _compare(self, voter: Voter, question: str, items: Items) -> Operation[_Pairs]:
        """Return the contradicting pairs among some statements by their own numbers, with the reason of each."""
        own = dict(enumerate(items, 1))
        limits = AnswerLimits(
            values=(("first", tuple(own)), ("second", tuple(own))),
            lengths=(("contradictions", max(_FEWEST_PAIRS, 2 * len(own))),),
        )
        inputs = {"statements": request_items("statement", items)}
        reply: Contradictions = yield from self._answer(inputs, None, voter, language_from=question, limits=limits)
        pairs: _Pairs = {}
        for found in reply.contradictions:
            if {found.first, found.second} <= own.keys():
                one, other = sorted((own[found.first], own[found.second]))
                if items[one].turn != items[other].turn:
                    pairs.setdefault((one, other), found.reason)
        return pairs


def find_contradictions(judge: JudgeLike) -> JudgeStep:
    """Return the step that finds contradictions between the turns of the assistant."""
    return FindContradictions(prompt="find_contradictions", judge=judge, answer=Contradictions)


def _findings(items: Items, pairs: _Pairs) -> Iterator[Finding]:
    for number, item in items.items():
        found = {(set(pair) - {number}).pop(): reason for pair, reason in pairs.items() if number in pair}
        yield Finding(
            kind=item.kind,
            number=number,
            text=item.text,
            verdict=CONTRADICTED if found else CONSISTENT,
            reason=" ".join(dict.fromkeys(found.values())),
            cites=[str(turn) for turn in dict.fromkeys([item.turn, *(items[other].turn for other in found)])],
        )


def _blocks(items: Items, max_tokens: int | None) -> list[dict[int, Item]]:
    """Return the statements in blocks, two of which fit one request; one block if all fit."""
    if max_tokens is None or sum(map(_characters, items.values())) <= max_tokens * CHARACTERS_PER_TOKEN:
        return [dict(items)]
    return [*map(dict, split_by_size(items.items(), lambda item: _characters(item[1]), max_tokens / 2))]
