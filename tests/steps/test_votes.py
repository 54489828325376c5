from helpers.each import each
from helpers.scripted import scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge
from langchain_rageval.judge.judge import Voter
from langchain_rageval.steps.votes import agreement_rates, majority

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
