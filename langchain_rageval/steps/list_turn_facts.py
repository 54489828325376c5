"""List what the turns of a conversation say: statements of the assistant, facts that the user states, and needs.

The judge reads the turns with their numbers: the history, the question and the answer of the sample. Adds `turn_facts`,
a `TurnFacts`, each list in the order of the turns and without verbatim repeats. Makes no call for a sample without
history; the lists are then empty. An item of a turn that does not exist, or of the other side's turn, is asked for
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.answer_schemas import TurnFact, TurnFacts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State, list_length, most_items
from langchain_rageval.steps.numbered_turns import NumberedTurn, numbered_turns, request_turns, turn_windows
from langchain_rageval.steps.statement_checks import statement_key

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
