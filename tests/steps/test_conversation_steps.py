"""Steps about whole conversations: what the judge reads, which replies count, and how long ones are split."""

from itertools import combinations

import pytest
from helpers.each import each, error_of
from helpers.scripted import contradictions, fact_verdicts, need_verdicts, scripted, turn_facts

from langchain_rageval import Judge, JudgeOutputError, Sample, Turn
from langchain_rageval.steps.check_turns import check_needs, check_user_facts, find_contradictions, list_turn_facts

HISTORY = [Turn(role="user", text="I have a cat."), Turn(role="assistant", text="Cats cost 5 euros.")]
SAMPLE = Sample(question="And a dog?", history=HISTORY, answer="Dogs cost 9 euros.")
TURNS = [
    {"turn": 1, "role": "user", "text": "I have a cat."},
    {"turn": 2, "role": "assistant", "text": "Cats cost 5 euros."},
    {"turn": 3, "role": "user", "text": "And a dog?"},
    {"turn": 4, "role": "assistant", "text": "Dogs cost 9 euros."},
]


FACTS = turn_facts(
    statements=[(2, "Cats cost 5 euros."), (4, "Dogs cost 9 euros.")],
    facts=[(1, "The user has a cat.")],
    needs=[(3, "The price for a dog.")],
)


def listed(judge, sample=SAMPLE):
    return list_turn_facts(judge).invoke({"sample": sample})["turn_facts"]


def run(step, key, given=FACTS, sample=SAMPLE):
    found = step.invoke({"sample": sample, "turn_facts": given})[key]
    return [(finding.number, finding.text, finding.verdict, finding.reason, finding.cites) for finding in found]


def test_the_judge_reads_history_question_and_answer_as_numbered_turns():
    judge = scripted(FACTS)
    assert listed(judge) == FACTS
    assert judge.inputs == [{"turns": TURNS}]
    assert listed(scripted(), Sample(question="Why?", answer="So.")) == turn_facts()  # without history nothing is asked


@each(
    ("wrong", "told"),
    [
        ({"statements": [(3, "Dogs.")]}, "`statements` are of turns of the assistant (2, 4), but 'Dogs.'"),
        ({"needs": [(7, "A dog.")]}, "`needs` are of turns of the user (1, 3), but 'A dog.' is listed with turn 7"),
    ],
)
def test_an_item_of_a_turn_that_cannot_have_said_it_is_asked_for_again(wrong, told):
    wrong = turn_facts(**wrong)
    judge = scripted(wrong, FACTS)
    assert listed(judge) == FACTS
    assert told in str(judge.asked[1][-1].content)
    assert error_of(JudgeOutputError, listed, Judge(scripted(wrong, wrong), attempts=2)).step == "list_turn_facts"


def test_repeats_within_a_turn_and_blank_items_are_dropped_and_turns_put_in_order():
    given = turn_facts(statements=[(4, "Dogs cost 9."), (2, "Cats cost 5."), (4, "Dogs cost 9"), (4, " ")])
    assert listed(scripted(given)) == turn_facts(statements=[(2, "Cats cost 5."), (4, "Dogs cost 9")])


def test_a_list_is_cut_to_what_the_turns_of_its_side_can_hold():
    told = [f"Fact {number}." for number in range(40)]
    lists = listed(scripted(turn_facts(statements=[(2, text) for text in told], needs=[(1, text) for text in told])))
    said = {role: sum(len(turn["text"]) for turn in TURNS if turn["role"] == role) for role in ("user", "assistant")}
    assert len(lists.statements) == max(10, said["assistant"] // 3) == 12
    assert len(lists.needs) == max(10, said["user"] // 3) == 10


def test_a_long_conversation_is_listed_in_windows_whose_turns_keep_their_numbers():
    judge = scripted(turn_facts(facts=[(1, "A cat.")]), turn_facts(statements=[(4, "Nine.")]))
    found = listed(Judge(judge, max_context_tokens=30))
    assert found == turn_facts(facts=[(1, "A cat.")], statements=[(4, "Nine.")])
    assert sorted(tuple(turn["turn"] for turn in inputs["turns"]) for inputs in judge.inputs) == [(1, 2), (3, 4)]


def test_contradictions_are_of_two_turns_and_both_statements_cite_them():
    judge = scripted(contradictions((2, 1), (1, 9), (1, 1)))
    assert run(find_contradictions(judge), "consistency_verdicts") == [
        (1, "Cats cost 5 euros.", "contradicted", "r", ["2", "4"]),
        (2, "Dogs cost 9 euros.", "contradicted", "r", ["4", "2"]),
    ]
    one, other = ({"statement": n, "turn": fact.turn, "text": fact.text} for n, fact in enumerate(FACTS.statements, 1))
    assert judge.inputs == [{"statements": [one, other]}]


@each(("turns", "replies"), [((2, 2, 4), [contradictions((1, 2))]), ((2, 2), [])])
def test_statements_of_one_turn_do_not_contradict_and_alone_are_not_compared(turns, replies):
    given = turn_facts(statements=[(turn, text) for turn, text in zip(turns, "abc", strict=False)])
    found = run(find_contradictions(scripted(*replies)), "consistency_verdicts", given)
    assert [item[2] for item in found] == ["consistent"] * len(turns)


def test_a_contradiction_needs_more_than_half_of_the_votes():
    judge = scripted(contradictions((1, 2)), contradictions(), contradictions((1, 2)))
    found = run(find_contradictions(Judge(judge, draws=3)), "consistency_verdicts")
    assert [item[2] for item in found] == ["contradicted", "contradicted", "0.67", "0.67"]
    judge = scripted(contradictions((1, 2)), contradictions(), contradictions())
    found = run(find_contradictions(Judge(judge, draws=3)), "consistency_verdicts")
    assert [item[2] for item in found][:2] == ["consistent", "consistent"]


def test_each_two_blocks_of_a_long_list_of_statements_are_compared():
    given = turn_facts(statements=[(2, "a" * 80), (4, "b" * 80), (6, "c" * 80)])
    judge = scripted(contradictions(), contradictions((1, 2)), contradictions())
    found = run(find_contradictions(Judge(judge, max_context_tokens=60)), "consistency_verdicts", given)
    assert sum(item[2] == "contradicted" for item in found) == 2


@each(
    ("most", "requests"),
    [
        (75, [(2, 4, 6, 8, 10)]),
        (74, [(2, 4, 6, 8), (2, 4, 10), (6, 8, 10)]),
        (60, [(2, 4, 6, 8), (2, 4, 10), (6, 8, 10)]),
        (59, [(a, b) for a, b in combinations((2, 4, 6, 8, 10), 2)]),
    ],
)
def test_a_request_holds_two_blocks_of_half_of_what_fits_it(most, requests):
    # 15 tokens each, with 40 characters of JSON
    given = turn_facts(statements=[(turn, "a" * 20) for turn in (2, 4, 6, 8, 10)])
    judge = scripted(*[contradictions()] * len(requests))
    run(find_contradictions(Judge(judge, max_context_tokens=most)), "consistency_verdicts", given)
    assert [tuple(item["turn"] for item in inputs["statements"]) for inputs in judge.inputs] == requests


def test_a_fact_or_need_cites_its_own_turn_and_those_that_decide():
    judge = scripted(fact_verdicts((1, "asked again", [4])))
    assert run(check_user_facts(judge), "fact_verdicts") == [(1, "The user has a cat.", "asked again", "r", ["1", "4"])]
    assert judge.inputs == [{"turns": TURNS, "facts": [{"fact": 1, "turn": 1, "text": "The user has a cat."}]}]
    judge = scripted(need_verdicts((1, "met", [4, 3, 2, 99])))
    assert run(check_needs(judge), "need_verdicts") == [(1, "The price for a dog.", "met", "r", ["3", "4"])]
    assert judge.inputs == [{"turns": TURNS, "needs": [{"need": 1, "turn": 3, "text": "The price for a dog."}]}]


def test_a_verdict_without_the_turn_that_decides_is_asked_for_again_once():
    judge = scripted(need_verdicts((1, "met", [])), need_verdicts((1, "met", [4])))
    assert run(check_needs(judge), "need_verdicts")[0][4] == ["3", "4"]
    judge = scripted(need_verdicts((1, "met", [])), need_verdicts((1, "met", [])))
    assert run(check_needs(judge), "need_verdicts")[0][2:] == ("met", "r", ["3"])
    assert run(check_needs(scripted(need_verdicts((1, "unmet", [])))), "need_verdicts")[0][2] == "unmet"


def test_items_are_sent_in_slices_and_turns_in_windows_of_which_the_strongest_verdict_decides():
    given = turn_facts(needs=[(1, "A."), (3, "B.")])
    judge = scripted(need_verdicts((1, "unmet", [])), need_verdicts((1, "met", [4])), need_verdicts((1, "unmet", [])))
    found = run(check_needs(Judge(judge, max_statements=1, max_context_tokens=30)), "need_verdicts", given)
    asked = [([t["turn"] for t in i["turns"]], [n["text"] for n in i["needs"]]) for i in judge.inputs]
    assert sorted(asked) == [([1, 2], ["A."]), ([3, 4], ["A."]), ([3, 4], ["B."])]
    assert sorted(item[2] for item in found) == ["met", "unmet"]


@each("turns", ["4", "null", '["4"]'])
def test_a_number_alone_or_null_is_read_as_a_list_of_turns(turns):
    verdict = f'"need": 1, "reason": "r", "verdict": "unmet", "turns": {turns}'
    reply = f'{{"verdicts": [{{{verdict}}}]}}'
    found = run(check_needs(scripted(reply)), "need_verdicts")
    assert found[0][4] == (["3"] if turns == "null" else ["3", "4"])


@pytest.mark.parametrize(("statements", "most"), [(2, 10), (8, 16)])
def test_a_reply_may_name_ten_contradictions_or_two_of_each_statement(openai_server, chat_openai, statements, most):
    server = openai_server(lambda _: {"contradictions": []}, number=lambda number: f"chatcmpl-{number:032x}")  # vLLM
    told = [(2 + n % 2 * 2, f"Cats cost {n} euros.") for n in range(statements)]
    judge = Judge(chat_openai(server))
    for _ in range(2):  # the first reply tells which server it is
        run(find_contradictions(judge), "consistency_verdicts", turn_facts(statements=told, facts=[], needs=[]))
    schema = server.requests[-1].body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["contradictions"]["maxItems"] == most


@each(
    ("turns", "most", "windows"),
    [
        ([1], 30, [[1, 2], [3, 4]]),
        ([2], 30, [[3, 4]]),
        ([4], 30, []),
        ([4, 2], 30, [[3, 4]]),
        ([4], None, [[1, 2, 3, 4]]),
    ],
)
def test_only_windows_with_a_later_turn_can_decide(turns, most, windows):
    verdicts = need_verdicts(*((n, "unmet", []) for n in range(1, len(turns) + 1)))
    judge = scripted(*[verdicts] * len(windows))
    given = turn_facts(needs=[(turn, "A.") for turn in turns])
    run(check_needs(Judge(judge, max_context_tokens=most)), "need_verdicts", given)
    assert sorted([t["turn"] for t in asked["turns"]] for asked in judge.inputs) == windows
