from enum import Enum, IntEnum
from itertools import permutations
from typing import Annotated, Literal

from helpers.each import each
from helpers.scripted import scripted
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from langchain_rageval import Finding, Judge
from langchain_rageval.judge.judge import Voter
from langchain_rageval.judge.probabilities import decided_fields
from langchain_rageval.steps.votes import UNDECIDED, AnswerVotes, agreement_rates, majority

ONE, TWO, THREE = (Judge(scripted(), max_statements=size) for size in (1, 2, 3))


def told(*votes, judges=(ONE, ONE, ONE)):
    voters = [Voter(judge, draw) for draw, judge in enumerate(judges)]
    return list(agreement_rates({4: "text"}, voters, [{4: vote} for vote in votes]))


MAJORITIES = [(["a"], "t", "a"), (["a", "b"], "t", "t"), (["b", "a", "b"], "t", "b"), ([*"abcca"], "t", "t")]
MAJORITIES += [([True, False], True, True), ([False, True, False], True, False)]


@each(("votes", "tie", "decided"), MAJORITIES)
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


def test_optional_and_annotated_fields_decide_and_optional_texts_do_not():
    class Answer(BaseModel):
        label: Annotated[Literal["a", "b"] | None, Field(description="d")]
        passed: bool | None = None
        grade: Annotated[int | None, Field(ge=1)] = None
        note: Annotated[str, Field(max_length=9)] | None = None

    assert list(decided_fields(Answer)) == ["label", "passed", "grade"]


OTHER, THIRD = (Judge(type(name, (type(scripted()),), {})()) for name in ("Other", "Third"))


RATES = [
    ("aba", [ONE, ONE, ONE], "0.67", "2 of 3 draws"),
    ("ab", [ONE, ONE], "0.50", "1 of 2 draws: a, b"),
    ("aa", [OTHER, THIRD], "1.00", "2 of 2 votes"),
    ("ab", [OTHER, THIRD], "0.50", "1 of 2 votes; Other(): a; Third(): b"),
    ("aba", [ONE, OTHER, TWO], "0.67", "2 of 3 votes; Other(): b"),
    ("abc", [OTHER, THIRD, ONE], "0.33", "1 of 3 votes; Other(): a; Third(): b; Scripted(): c"),
    ("abba", [OTHER, OTHER, THIRD, THIRD], "0.50", "2 of 4 votes; Other(): a; Other(): b; Third(): b; Third(): a"),
]


@each(("votes", "judges", "rate", "reason"), RATES)
def test_the_rate_counts_the_most_frequent_vote_and_names_the_judges_that_disagree(votes, judges, rate, reason):
    (finding,) = told(*votes, judges=judges)
    assert finding == Finding(kind="agreement", number=4, text="text", verdict=rate, reason=reason)


class Aspect(BaseModel):
    """Part of an answer that a label names."""

    aspect: Literal["tone", "form"]
    ok: bool


class Point(BaseModel):
    """Part of an answer that its first text names."""

    reason: str
    point: str
    ok: bool


def points(*values):
    return [Point(reason="because", point=f"p{number}", ok=value) for number, value in enumerate(values)]


class Flag(BaseModel):
    """Part of an answer without a name."""

    reason: str = ""
    ok: bool


def flags(*values, kind=Flag, **fields):
    return [kind(ok=value, **fields) for value in values]


BOTH = TONE, FORM = [Aspect(aspect="tone", ok=True), Aspect(aspect="form", ok=False)]
MIXED = flags(True, False)
TWINS = [flags(True, ok, kind=Item, statement=7) for ok in (False, True)]


FIELDS = [  # the type, votes, the decision, and what follows "field" in the name of each part, with its rate
    (bool | None, [True, None, True], True, " 0.67"),
    (bool | None, [True, None, None], None, " 0.67"),
    (bool | None, [True, True, None, None, None], None, " 0.60"),
    (Annotated[Literal["x", "y"] | None, Field(description="d")], ["x", "x", None], "x", " 0.67"),
    (Annotated[int, Field(ge=1, le=5)], [1, 1, 2, 5, 5], 2, " 0.40"),
    (float | None, [0.2, None, 0.6], 0.4, " 0.33"),
    (int, [5, 3], 3, " 0.50"),
    (int | None, [None, None, 1, 2], UNDECIDED, " 0.50"),
    (int | None, [None, 1, 2, 2], 2, " 0.50"),
    (bool, [True, False], UNDECIDED, " 0.50"),
    (Color, [Color.RED, Color.RED, Color.BLUE], Color.RED, " 0.67"),
    (Color, [Color.RED, Color.GREEN, Color.BLUE], UNDECIDED, " 0.33"),
    (Level, [1, 3, 3], Level.HIGH, " 0.67"),
    (bool | Literal["unknown"], [True, "unknown", "unknown"], "unknown", " 0.67"),
    (Flag | bool, [Flag(ok=True), Flag(ok=True), False], Flag(ok=True), " 0.67"),
    (Flag | bool, [Flag(ok=True), Flag(ok=False), False], UNDECIDED, " 0.33"),
    (list[bool], [[True, True], [True, False], [True, False]], [True, False], "[1] 1.00, [2] 0.67"),
    (tuple[bool, bool], [(True, True), (True, False)] * 2 + [(True, True)], (True, True), "[1] 1.00, [2] 0.60"),
    (dict[str, bool], [{"x": True, "y": False}] * 2 + [{"x": False}], {"x": True, "y": False}, "[x] 0.67, [y] 0.67"),
    (list[str], [["a", "b"], ["a"], ["a", "e"]], ["a"], ": a 1.00, : b 0.67, : e 0.67"),
    (list[Literal["p", "q"]], [["p", "q"], ["q"], ["q", "p"]], ["q", "p"], ": p 0.67, : q 1.00"),
    (
        Nested,
        [
            {"items": items(s1=True, s2=False), "color": "red"},
            {"items": items(s2=True, s1=True), "color": "red"},
            {"items": items(s1=False, s2=False)},
        ],
        Nested(items=items(s1=True, s2=False), color="red"),
        ".color 0.67, .items[1].ok 0.67, .items[1].statement 1.00, .items[2].ok 0.67, .items[2].statement 1.00",
    ),
    (
        list[Aspect],
        [BOTH, BOTH, [FORM, TONE]],
        BOTH,
        "[form].aspect 1.00, [form].ok 1.00, [tone].aspect 1.00, [tone].ok 1.00",
    ),
    (list[Flag], [MIXED, flags(True, True), flags(False, False)], MIXED, "[1].ok 0.67, [2].ok 0.67"),
    (
        list[Item],
        [TWINS[0], TWINS[0], TWINS[1]],
        TWINS[0],
        "[1].ok 1.00, [1].statement 1.00, [2].ok 0.67, [2].statement 1.00",
    ),
    (
        list[Point],
        [points(True), points(True, False), points(True, False)],
        points(True, False),
        "[p0].ok 1.00, [p1].ok 0.67",
    ),
]


@each(("kind", "votes", "decided", "rates"), FIELDS)
def test_each_order_of_the_votes_decides_a_field_alike_and_the_rate_of_each_part_is_told(kind, votes, decided, rates):
    answer = create_model("Answer", field=(kind, ...))
    told_rates = ", ".join(f"field{rate}" for rate in rates.split(", "))
    for order in permutations(votes):
        counted = AnswerVotes()
        joined = counted.answer([answer(field=vote) for vote in order]).field
        assert (UNDECIDED if counted.is_undecided else joined) == decided
        findings = list(counted.findings([Voter(ONE, draw) for draw in range(len(votes))]))
        assert [finding.number for finding in findings] == list(range(1, len(findings) + 1))
        assert ", ".join(sorted(f"{finding.text} {finding.verdict}" for finding in findings)) == told_rates


def test_the_votes_on_an_element_say_whether_each_list_has_it():
    answer, counted = create_model("Answer", words=(list[Literal["p", "q"]], ...)), AnswerVotes()
    counted.answer([answer(words=["p", "q"]), answer(words=["q"])])
    reasons = {finding.text: finding.reason for finding in counted.findings([Voter(OTHER, 0), Voter(THIRD, 0)])}
    assert reasons == {"words: q": "2 of 2 votes", "words: p": "1 of 2 votes; Other(): true; Third(): false"}


@each("reducer", [None, "majority", "median", "mean", lambda votes: votes[0]])
def test_one_vote_decides_alone(reducer):
    kind = create_model("Answer", grade=(int, ...), flags=(list[bool], ...), items=(list[Item], ...))
    vote = kind(grade=2, flags=[True, False], items=flags(True, False, kind=Item, statement=1))
    counted = AnswerVotes(reducer)
    assert (counted.answer([vote]), counted.is_undecided) == (vote, False)
    assert list(counted.findings([Voter(ONE, 0)])) == []
