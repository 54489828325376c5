"""Steps about conversations and questions: turns that the judge reads, questions rewritten or written back."""

from itertools import combinations

import pytest
from helpers.each import each, error_of
from helpers.scripted import contradictions, fact_verdicts, human_of, need_verdicts, questions, scripted, turn_facts
from helpers.stored import fixture_data

from langchain_rageval import Finding, Judge, JudgeOutputError, OfflineJudge, Sample, Turn
from langchain_rageval.steps import StandaloneQuestion
from langchain_rageval.steps.check_turns import check_needs, check_user_facts, find_contradictions, list_turn_facts
from langchain_rageval.steps.questions import new_facts, recent_turns, regenerate_questions, rewrite_question

HISTORY = [Turn(role="user", text="I have a cat."), Turn(role="assistant", text="Cats cost 5 euros.")]
SAMPLE = Sample(question="And a dog?", history=HISTORY, answer="Dogs cost 9 euros.")
TURNS = [
    {"turn": 1, "role": "user", "text": "I have a cat."},
    {"turn": 2, "role": "assistant", "text": "Cats cost 5 euros."},
    {"turn": 3, "role": "user", "text": "And a dog?"},
    {"turn": 4, "role": "assistant", "text": "Dogs cost 9 euros."},
]


SAID = [(2, "Cats cost 5 euros."), (4, "Dogs cost 9 euros.")]
FACTS = turn_facts(statements=SAID, facts=[(1, "The user has a cat.")], needs=[(3, "The price for a dog.")])


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


WRONG_TURNS = [
    ({"statements": [(3, "Dogs.")]}, "`statements` are of turns of the assistant (2, 4), but 'Dogs.'"),
    ({"needs": [(7, "A dog.")]}, "`needs` are of turns of the user (1, 3), but 'A dog.' is listed with turn 7"),
]


@each(("wrong", "told"), WRONG_TURNS)
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
    for last, verdict in ((contradictions((1, 2)), "contradicted"), (contradictions(), "consistent")):
        judge = scripted(contradictions((1, 2)), contradictions(), last)
        found = run(find_contradictions(Judge(judge, draws=3)), "consistency_verdicts")
        assert [item[2] for item in found] == [verdict, verdict, "0.67", "0.67"]


def test_each_two_blocks_of_a_long_list_of_statements_are_compared():
    given = turn_facts(statements=[(2, "a" * 80), (4, "b" * 80), (6, "c" * 80)])
    judge = scripted(contradictions(), contradictions((1, 2)), contradictions())
    found = run(find_contradictions(Judge(judge, max_context_tokens=60)), "consistency_verdicts", given)
    assert sum(item[2] == "contradicted" for item in found) == 2


BLOCKS = [
    (75, [(2, 4, 6, 8, 10)]),
    (74, [(2, 4, 6, 8), (2, 4, 10), (6, 8, 10)]),
    (60, [(2, 4, 6, 8), (2, 4, 10), (6, 8, 10)]),
    (59, [(a, b) for a, b in combinations((2, 4, 6, 8, 10), 2)]),
]


@each(("most", "requests"), BLOCKS)
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
    for turns, cites in (([4], ["3", "4"]), ([], ["3"])):
        judge = scripted(need_verdicts((1, "met", [])), need_verdicts((1, "met", turns)))
        assert run(check_needs(judge), "need_verdicts")[0][2:] == ("met", "r", cites)
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


WINDOWS = [([1], 30, [[1, 2], [3, 4]]), ([2], 30, [[3, 4]]), ([4, 2], 30, [[3, 4]]), ([4], 30, [])]
WINDOWS += [([4], None, [[1, 2, 3, 4]])]


@each(("turns", "most", "windows"), WINDOWS)
def test_only_windows_with_a_later_turn_can_decide(turns, most, windows):
    verdicts = need_verdicts(*((n, "unmet", []) for n in range(1, len(turns) + 1)))
    judge = scripted(*[verdicts] * len(windows))
    given = turn_facts(needs=[(turn, "A.") for turn in turns])
    run(check_needs(Judge(judge, max_context_tokens=most)), "need_verdicts", given)
    assert sorted([t["turn"] for t in asked["turns"]] for asked in judge.inputs) == windows


# Questions: rewritten to stand alone, checked, and written back from an answer

TEXTS = fixture_data("rewritten_questions.yaml")

FOUNDED = [Turn(role="user", text="Кто основал Мюнхен?"), Turn(role="assistant", text="Генрих Лев.")]
FOLLOW_UP = Sample(question="А когда он умер?", answer="В 1195 году.", history=FOUNDED)
STANDALONE = StandaloneQuestion(reason="он — Генрих Лев", question="Когда умер Генрих Лев?")


def rewritten(judge, sample=FOLLOW_UP):
    return rewrite_question(judge).invoke({"sample": sample})


def finding(text, verdict, reason):
    return Finding(kind="standalone_question", number=1, text=text, verdict=verdict, reason=reason)


def test_the_judge_reads_history_and_question_and_later_steps_get_the_standalone_question():
    judge = scripted(STANDALONE)
    state = rewritten(judge)
    history = [{"role": "user", "text": "Кто основал Мюнхен?"}, {"role": "assistant", "text": "Генрих Лев."}]
    assert judge.inputs == [{"history": history, "question": "А когда он умер?"}]
    assert state["sample"] == FOLLOW_UP.model_copy(update={"question": "Когда умер Генрих Лев?"})
    assert state["standalone_question"] == STANDALONE
    assert state["question_findings"] == [finding("Когда умер Генрих Лев?", "rewritten", "он — Генрих Лев")]


def test_a_question_that_is_clear_stays_as_it_was_written_and_one_without_history_is_not_asked_about():
    for question in ("А когда он умер?", " а когда он  умер? "):
        state = rewritten(scripted(StandaloneQuestion(reason="ясно", question=question)))
        assert state["sample"] == FOLLOW_UP
        assert state["question_findings"] == [finding("А когда он умер?", "unchanged", "ясно")]
    sample = FOLLOW_UP.model_copy(update={"history": []})
    assert rewritten(scripted(), sample) == {"sample": sample}


REFUSED = [
    ("Когда умер Отто?", "в переписанном «Когда умер Отто?» добавлено: Отто"),
    ("Когда он умер в 1195?", "в переписанном «Когда он умер в 1195?» добавлено: 1195"),
    (" ", "судья вернул пустой вопрос"),
]


@each(("rewrite", "problem"), REFUSED)
def test_a_rewrite_with_new_facts_is_refused_after_one_call(rewrite, problem):
    judge = scripted(StandaloneQuestion(reason="r", question=rewrite))
    state = rewritten(judge)
    assert (len(judge.inputs), state["sample"]) == (1, FOLLOW_UP)
    assert state["standalone_question"].question == FOLLOW_UP.question
    assert state["question_findings"] == [finding(FOLLOW_UP.question, "refused", f"вопрос взят как есть: {problem}")]


def test_a_refusal_is_in_the_language_of_the_question():
    sample = Sample(question="And when did he die?", history=[Turn(role="user", text="Who was king?")])
    state = rewritten(scripted(StandaloneQuestion(reason="", question="When did Otto die?")), sample)
    reason = "the question was judged as it is: the rewrite 'When did Otto die?' adds Otto"
    assert state["question_findings"][0].reason == reason


def test_the_oldest_turns_are_left_out_if_the_history_is_longer_than_the_judge_reads():
    turns = [Turn(role="user", text=letter * 40) for letter in "abc"]
    for limit, kept in ((None, "abc"), (20, "bc"), (1, "c")):
        assert recent_turns(turns, limit) == [{"role": "user", "text": letter * 40} for letter in kept]
    judge = scripted(StandaloneQuestion(reason="", question="?"))
    rewritten(Judge(judge, max_context_tokens=1), FOLLOW_UP.model_copy(update={"history": turns}))
    assert [turn["text"][0] for turn in judge.inputs[0]["history"]] == ["c"]


OFFLINE = [
    (FOUNDED, "А когда он умер?", "А когда он умер (Генрих Лев)?"),
    (FOUNDED, "Какие музеи стоит посетить в городе Дрезден?", "Какие музеи стоит посетить в городе Дрезден?"),
    ([Turn(role="user", text="сколько стоит?")], "А за год?", "А за год?"),
    ([Turn(role="user", text="Is the Isar a river?")], "Is it long here?", "Is it long here (Isar)?"),
]


@each(("history", "question", "standalone"), OFFLINE)
def test_the_offline_judge_adds_the_last_name_or_changes_nothing(history, question, standalone):
    state = rewritten(OfflineJudge(), Sample(question=question, history=history))
    assert state["sample"].question == standalone


def regenerated(judge, count=3, answer="In 1158."):
    state = regenerate_questions(judge, count=count).invoke({"sample": Sample(question="When?", answer=answer)})
    return state["evasive"], state["regenerated_questions"]


def test_all_questions_are_asked_for_in_one_call_that_does_not_show_the_question():
    judge = scripted(questions("When was it?", "What year?", "Since when?"))
    assert regenerated(judge) == (False, ["When was it?", "What year?", "Since when?"])
    assert judge.inputs == [{"answer": "In 1158.", "count": 3}]
    assert "When?" not in human_of(judge.asked[0])


REPLIES = [
    *((questions("a", "b"), count, (False, ["a", "b"][:count])) for count in (1, 2, 3)),
    (questions(" ", " a ", "", "b"), 2, (False, ["a", "b"])),  # blank ones are dropped before the rest are cut
    *((questions(*told, evasive=True), 3, (True, [])) for told in ([], ["a"])),
]


@each(("reply", "count", "expected"), REPLIES)
def test_fewer_questions_are_taken_more_are_cut_and_none_of_an_evasive_answer(reply, count, expected):
    assert regenerated(scripted(reply), count) == expected


@each("none", [[], [""], [" ", "\n"]])
def test_no_questions_without_the_word_that_the_answer_is_evasive_are_asked_again(none):
    judge = scripted(questions(*none), questions("a"))
    assert regenerated(judge) == (False, ["a"])
    assert "no questions" in judge.asked[1][-1].text


@each("answer", [None, "", " \n\t"])
def test_a_blank_answer_is_evasive_without_a_call(answer):
    assert regenerated(scripted(), answer=answer) == (True, [])


def test_draws_are_independent_calls_and_the_majority_says_whether_the_answer_is_evasive():
    judge = scripted(questions("a", "b"), questions(evasive=True), questions("c"))
    assert regenerated(Judge(judge, draws=3), 2) == (False, ["a", "b", "c"])
    assert len(judge.asked) == 3
    judge = scripted(questions("a", "b"), questions(evasive=True), questions(evasive=True))
    assert regenerated(Judge(judge, draws=3), 2)[0] is True


@each(("question", "source", "facts"), [*((*pair, []) for pair in TEXTS["known"]), *TEXTS["new"]])
def test_names_and_numbers_from_nowhere_are_found_and_other_forms_and_groups_are_not(question, source, facts):
    assert new_facts(question, source) == facts
