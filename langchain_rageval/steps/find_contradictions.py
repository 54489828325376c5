"""Find statements of the assistant that contradict a statement of another of its turns.

The judge reads numbered statements with their turns. Reads `turn_facts` and adds `consistency_verdicts`, a list of
Finding: one for each statement in order with the verdict "contradicted" or "consistent", then the agreement rates if
there are several votes. A finding cites its own turn first, then the turns that contradict it. Makes no call unless
statements are of at least two turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Contradictions, TurnFact, TurnFacts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.run.usage import CHARACTERS_PER_TOKEN
from langchain_rageval.steps.judge_step import JudgeStep, State, agreement_rates, item_numbers, majority

CONTRADICTED, CONSISTENT = "contradicted", "consistent"

_FEWEST_PAIRS = 10  # that a judge may list
_CHARACTERS_BESIDE_TEXT = 40  # of a statement in JSON: keys and numbers

_Facts = Mapping[int, TurnFact]
_Pairs = dict[tuple[int, int], str]


class FindContradictions(JudgeStep):
    """Step that adds `consistency_verdicts`, a list of Finding: one for each statement, then the agreement rates.

    Statements that exceed the judge's `max_context_tokens` are split into blocks, and each two blocks are compared. A
    pair counts if more than half of the votes found it. Pairs within one turn are dropped.
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which statements contradict each other.

        One request per vote, or, for a long list, per pair of blocks and vote; no call if no two turns state anything.
        """
        sample: Sample = state["sample"]
        facts: TurnFacts = state["turn_facts"]
        statements = dict(enumerate(facts.statements, 1))
        several_turns = len({statement.turn for statement in facts.statements}) > 1
        voters = voters_of(self.judge) if several_turns else []
        votes: list[_Pairs] = yield Gather([self._vote(voter, sample.language_text, statements) for voter in voters])
        found = {pair: reason for vote in reversed(votes) for pair, reason in vote.items()}
        pairs = {
            pair: reason for pair, reason in sorted(found.items()) if majority([pair in vote for vote in votes], False)
        }
        texts = {number: statement.text for number, statement in statements.items()}
        labels = [{number: _label(number, vote) for number in statements} for vote in votes]
        findings = [*_findings(statements, pairs), *agreement_rates(texts, voters, labels)]
        return state | {"consistency_verdicts": findings}

    def _vote(self, voter: Voter, question: str, statements: _Facts) -> Operation[_Pairs]:
        blocks = _blocks(statements, voter.judge.max_context_tokens)
        requests = [statements] if len(blocks) == 1 else [one | other for one, other in combinations(blocks, 2)]
        parts: list[_Pairs] = yield Gather([self._compare(voter, question, part) for part in requests])
        return {pair: reason for part in parts for pair, reason in part.items()}

    def _compare(self, voter: Voter, question: str, statements: _Facts) -> Operation[_Pairs]:
        """Return the contradicting pairs among some statements by their own numbers, with the reason of each."""
        own = list(statements)
        numbers = item_numbers(len(own))
        items = [
            {"statement": place, "turn": statement.turn, "text": statement.text}
            for place, statement in enumerate(statements.values(), 1)
        ]
        judge_question = self.build_question(
            {"statements": items},
            None,
            language_from=question,
            judge=voter.judge,
            limits=AnswerLimits(
                values=(("first", numbers), ("second", numbers)),
                lengths=(("contradictions", max(_FEWEST_PAIRS, 2 * len(own))),),
            ),
        )
        reply: Contradictions = yield self.ask(judge_question, voter)
        pairs: _Pairs = {}
        for found in reply.contradictions:
            if not {found.first, found.second} <= set(numbers):
                continue
            one, other = sorted((own[found.first - 1], own[found.second - 1]))
            if statements[one].turn != statements[other].turn:
                pairs.setdefault((one, other), found.reason)
        return pairs


def find_contradictions(judge: JudgeLike) -> JudgeStep:
    """Return the step that finds contradictions between the turns of the assistant."""
    return FindContradictions(prompt="find_contradictions", judge=Judge.of(judge), answer=Contradictions)


def _findings(statements: _Facts, pairs: _Pairs) -> Iterator[Finding]:
    for number, statement in statements.items():
        others = {
            one if number == other else other: reason
            for (one, other), reason in pairs.items()
            if number in (one, other)
        }
        turns = dict.fromkeys([statement.turn, *(statements[other].turn for other in others)])
        yield Finding(
            kind="turn",
            number=number,
            text=statement.text,
            verdict=CONTRADICTED if others else CONSISTENT,
            reason=" ".join(dict.fromkeys(others.values())),
            cites=[str(turn) for turn in turns],
        )


def _label(number: int, pairs: _Pairs) -> str:
    return CONTRADICTED if any(number in pair for pair in pairs) else CONSISTENT


def _blocks(statements: _Facts, max_tokens: int | None) -> list[dict[int, TurnFact]]:
    """Return the statements in blocks, two of which fit one request; one block if all fit."""
    sizes = {n: (len(s.text) + _CHARACTERS_BESIDE_TEXT) / CHARACTERS_PER_TOKEN for n, s in statements.items()}
    if max_tokens is None or sum(sizes.values()) <= max_tokens:
        return [dict(statements)]
    blocks: list[dict[int, TurnFact]] = []
    size = 0.0
    for number, statement in statements.items():
        if not blocks or size + sizes[number] > max_tokens / 2:
            blocks.append({})
            size = 0.0
        blocks[-1][number] = statement
        size += sizes[number]
    return blocks
