from enum import Enum, IntEnum
from itertools import permutations
from typing import Annotated, Literal

from helpers.each import each
from helpers.scripted import scripted
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from langchain_rageval import Judge
from langchain_rageval.judge.judge import Voter
from langchain_rageval.judge.probabilities import decided_fields
from langchain_rageval.steps.votes import UNDECIDED, AnswerVotes, agreement_rates, majority

ONE, TWO, THREE = (Judge(scripted(), max_statements=size) for size in (1, 2, 3))


def told(*votes, judges=(ONE, ONE, ONE)):
    voters = [Voter(judge, draw) for draw, judge in enumerate(judges)]
    return list(agreement_rates({4: "text"}, voters, [{4: vote} for vote in votes]))


@each(
    ("votes", "tie", "decided"),
    [
        (["a"], "t", "a"),
        (["a", "b"], "t", "t"),
        (["b", "a", "b"], "t", "b"),
        (["a", "b", "c"], "t", "t"),
        (["a", "b", "c", "c", "a"], "t", "t"),
        ([True, False], True, True),
        ([True, False], False, False),
        ([False, True, False], True, False),
    ],
)
def test_the_most_frequent_vote_decides_and_otherwise_the_tie_does(votes, tie, decided):
    assert majority(votes, tie=tie) == decided


@given(st.lists(st.sampled_from("abc"), min_size=1), st.randoms())
def test_the_order_of_the_votes_does_not_matter(votes, random):
    assert majority(random.sample(votes, len(votes)), tie="t") == majority(votes, tie="t")


class Color(Enum):
    """Label as an enumeration."""

    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class Level(IntEnum):
    """Label that is a number."""

    LOW = 1
    HIGH = 3


class Item(BaseModel):
    """Numbered part of an answer."""

    statement: int
    reason: str = ""
    ok: Annotated[bool, Field(description="holds")]


class Nested(BaseModel):
    """Answer within an answer."""

    items: list[Item]
    color: Color | None = None


def items(**verdicts):
    return [{"statement": int(name[1:]), "ok": ok} for name, ok in verdicts.items()]


@each(
    ("kind", "votes", "decided"),
    [
        (bool | None, [True, None, True], True),
        (bool | None, [True, None, None], None),
        (bool | None, [True, True, None, None, None], None),
        (Annotated[Literal["x", "y"] | None, Field(description="d")], ["x", "x", None], "x"),
        (Annotated[int, Field(ge=1, le=5)], [1, 1, 2, 5, 5], 2),
        (float | None, [0.2, None, 0.6], 0.4),
        (int, [5, 3], 3),
        (bool, [True, False], UNDECIDED),
        (Color, [Color.RED, Color.RED, Color.BLUE], Color.RED),
        (Color, [Color.RED, Color.GREEN, Color.BLUE], UNDECIDED),
        (Level, [1, 3, 3], Level.HIGH),
        (bool | Literal["unknown"], [True, "unknown", "unknown"], "unknown"),
        (Item | bool, [False, False, Item(statement=1, ok=True)], False),
        (list[bool], [[True, True, False], [True, False, False], [True, False, False]], [True, False, False]),
        (tuple[bool, bool], [(True, True), (True, False), (True, True)], (True, True)),
        (dict[str, bool], [{"x": True, "y": False}, {"y": False, "x": True}, {"x": False}], {"x": True, "y": False}),
        (list[Literal["p", "q", "r"]], [["p", "q"], ["q"], ["r", "q"]], ["q"]),
        (
            Nested,
            [
                {"items": items(s1=True, s2=False), "color": "red"},
                {"items": items(s2=True, s1=True), "color": "red"},
                {"items": items(s1=False, s2=False)},
            ],
            Nested(items=[Item(statement=1, ok=True), Item(statement=2, ok=False)], color="red"),
        ),
    ],
)
def test_each_order_of_the_votes_decides_a_field_of_any_type_alike(kind, votes, decided):
    answer = create_model("Answer", field=(kind, ...))
    for order in permutations(votes):
        counted = AnswerVotes()
        joined = counted.answer([answer(field=vote) for vote in order]).field
        assert (UNDECIDED if counted.is_undecided else joined) == decided


@each(("votes", "is_undecided", "decided"), [("--12", True, None), ("---1", False, None), ("-122", False, 2)])
def test_a_value_that_half_of_the_votes_lack_is_undecided(votes, is_undecided, decided):
    answer = create_model("Answer", grade=(int | None, None))
    counted = AnswerVotes()
    joined = counted.answer([answer(grade=None if vote == "-" else int(vote)) for vote in votes])
    assert (counted.is_undecided, joined.grade) == (is_undecided, decided)


def test_optional_and_annotated_fields_decide_and_optional_texts_do_not():
    class Answer(BaseModel):
        label: Annotated[Literal["a", "b"] | None, Field(description="d")]
        passed: bool | None = None
        grade: Annotated[int | None, Field(ge=1)] = None
        note: Annotated[str, Field(max_length=9)] | None = None

    assert list(decided_fields(Answer)) == ["label", "passed", "grade"]


def test_one_vote_has_no_agreement_to_tell():
    assert told("a", judges=[ONE]) == []


def test_draws_of_one_judge_have_a_rate():
    (finding,) = told("a", "b", "a")
    assert (finding.kind, finding.number, finding.text) == ("agreement", 4, "text")
    assert (finding.verdict, finding.reason) == ("0.67", "2 of 3 draws")


def test_of_several_judges_those_who_say_otherwise_are_named():
    other = Judge(type("Other", (type(scripted()),), {})())
    (finding,) = told("a", "b", "a", judges=[ONE, other, TWO])
    assert finding.reason == "2 of 3 votes; Other(): b"


def test_without_a_majority_every_vote_is_named():
    (finding,) = told("a", "b", "c", judges=[ONE, TWO, THREE])
    assert finding.verdict == "0.33"
    assert [vote for vote in "abc" if f": {vote}" in finding.reason] == ["a", "b", "c"]
