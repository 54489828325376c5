"""Probabilities of verdicts: the token log-probabilities of replies of several servers, and requests for them."""

import json
from enum import Enum
from itertools import permutations
from typing import Annotated, Literal, Optional

import pytest
from helpers.each import each, error_of
from helpers.offline import offline
from helpers.scripted import token, with_tokens
from helpers.servers.chat import ChatServer
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Refused
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from langchain_rageval import (
    ConfigError,
    Criterion,
    Judge,
    OfflineJudge,
    RetryPolicy,
    aspect_critique,
    context_precision,
    evaluate,
    faithfulness,
    rubric,
)
from langchain_rageval.judge.panels import request_probabilities
from langchain_rageval.judge.parser import StrictJsonOutputParser
from langchain_rageval.judge.probabilities import (
    _label_of_tokens,
    assign_probabilities,
    has_verdicts,
    least_probability,
    plain_type,
    probabilities_of,
    verdict_key,
)
from langchain_rageval.prompts.answer_schemas import (
    AspectVerdict,
    ContextVerdicts,
    RubricGrades,
    Statements,
    Verdict,
    Verdicts,
)


def without_bytes(reply):
    """Return a reply in the format of vLLM's older versions: tokens that end within a character are U+FFFD."""
    items = json.loads(json.dumps(reply.response_metadata["logprobs"]["content"]))
    for item in items:
        for one in (item, *item["top_logprobs"]):
            del one["bytes"]
    return AIMessage(reply.content, response_metadata={"logprobs": {"content": items}})


def in_columns(reply):
    """Return a reply in the format of OpenAI's completions."""
    items = reply.response_metadata["logprobs"]["content"]
    columns = {
        "tokens": [item["token"] for item in items],
        "token_logprobs": [item["logprob"] for item in items],
        "top_logprobs": [{one["token"]: one["logprob"] for one in item["top_logprobs"]} for item in items],
        "text_offset": [0] * len(items),
    }
    return AIMessage(reply.content, response_metadata={"logprobs": columns})


def read(kind, reply):
    answer = StrictJsonOutputParser(kind).read_message(reply)
    assert assign_probabilities(answer, reply)
    return answer


def rounded(distribution):
    return {label: round(probability, 4) for label, probability in distribution.items()}


RUSSIAN = with_tokens(
    *('{"reason":', ' "', "Ответ веж", "лив".encode()[:3], "лив".encode()[3:], "; verdict: false", '",', ' "verdict"'),
    *(":", token(" true", {" false": 0.25, " True": 0.05, "false": 0.1, " maybe": 0.2}), "}"),
)


@pytest.mark.parametrize("shape", [lambda reply: reply, without_bytes, in_columns])
def test_tokens_that_begin_a_label_are_added_up_after_russian_text(shape):
    answer = read(AspectVerdict, shape(RUSSIAN))
    assert rounded(probabilities_of(answer, "verdict")) == {"true": round(0.45 / 0.8, 4), "false": round(0.35 / 0.8, 4)}
    assert least_probability(answer) == pytest.approx(0.45 / 0.8)


def test_completions_without_alternatives_give_the_label_that_was_chosen():
    reply = in_columns(RUSSIAN)
    columns = reply.response_metadata["logprobs"]
    for alternatives in (None, [None] * len(columns["tokens"])):
        columns["top_logprobs"] = alternatives
        assert probabilities_of(read(AspectVerdict, reply), "verdict") == {"true": 1.0}


@each(
    ("tokens", "supported"),
    [
        (['"verdict": "', token("supported", {"absent": 0.3}), '"}'], 0.7),
        (['"verdict"', token(': "supp', {': "abs': 0.3}), 'orted"}'], 0.7),
        (['"verdict":', token(' "', {' "absent': 0.01}), token("s", {"absent": 0.2, "contr": 0.2}), 'upported"}'], 0.6),
        (['"verdict":"', token('supported"}', {'absent"}': 0.1, "con": 0.1}), ""], 0.8),
        (['"verdict" : \n "', token("supported", {"Supported": 0.2, "abs": 0.3}), '" }'], 0.7),
        (['"Verdict": "', token("SUPP", {"ABS": 0.3}), 'ORTED."}'], 0.7),
        (['"verdict": "', token("supported", {"absents,": 0.3}), '"}'], 1.0),  # another word is no label
        (['"verdict": "', token("supported", {"absent": 0.3}), token('"}', {"absent": 0.4})], 0.7),
        (['"verdict":', token('  "supported', {'   "absent': 0.3, '"contradicted': 0.1}), '"}'], 0.6),
    ],
)
def test_a_label_is_found_whatever_tokens_and_spaces_it_is_written_with(tokens, supported):
    reply = with_tokens('{"verdicts": [{"statement": 1, "reason": "so", "evidence": [], ', *tokens, "]}")
    answer = read(Verdicts, reply)
    found = probabilities_of(answer.verdicts[0], "verdict")
    assert found["supported"] == pytest.approx(supported)
    assert sum(found.values()) == pytest.approx(1)


def test_each_verdict_of_a_list_has_its_own_probabilities():
    parts = ['{"verdicts": [']
    for number, share in enumerate((0.9, 0.6, 0.55), 1):
        parts += [f'{{"statement": {number}, "reason": "x", "evidence": ["1.1"], "verdict": "']
        parts += [token("supported", {"absent": 1 - share}), '"}', ", " if number < 3 else "]}"]
    answer = read(Verdicts, with_tokens(*parts))
    found = [probabilities_of(verdict, "verdict")["supported"] for verdict in answer.verdicts]
    assert found == pytest.approx([0.9, 0.6, 0.55])
    assert least_probability(answer) == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (['"grade": ', token("2", {"3": 0.25, "1": 0.25}), "}"], {"2": 0.5, "3": 0.25, "1": 0.25}),
        (['"grade":', token(" 2", {" 3": 0.5}), "}"], {"2": 0.5, "3": 0.5}),
        (['"grade": ', token("1", {"2": 0.5}), token("0", {"}": 0.5}), "}"], {"2": 0.5, "10": 0.25, "1": 0.25}),
        (['"grade": ', token("10", {"1": 0.2, "9": 0.3}), "}"], {"10": 0.5, "1": 0.2, "9": 0.3}),
        (['"grade": "', token("2", {"3": 0.5}), '"}'], {"2": 0.5, "3": 0.5}),
    ],
)
def test_grades_have_probabilities_also_with_two_digits(tokens, expected):
    answer = read(RubricGrades, with_tokens('{"grades": [{"criterion": "tone", "reason": "3 of 4", ', *tokens, "]}"))
    assert rounded(probabilities_of(answer.grades[0], "grade")) == expected


def test_the_number_of_an_item_is_no_grade():
    reply = with_tokens('{"verdicts": [{"context": ', token("1", {"2": 0.5}), ', "reason": "", "useful": true}]}')
    answer = read(ContextVerdicts, reply)
    assert probabilities_of(answer.verdicts[0], "context") == {}
    assert probabilities_of(answer.verdicts[0], "useful") == {"true": 1.0}


@each(
    "around",
    [
        *("{}", "{{{}", "So {{here}}: {}", "{{{{ [x {}", "{}\nSee [1].", "{} {{'a' b}}"),
        '[{{"note": 1}}] {}\n{{"n": 2}}',
        '<think>{{"reason": "draft", "verdict": false}}</think>\n```json\n{}\n```',
        *("{} [verdict: true]", '{} {{"verdict": true]', '{} {{"verdict": true "sure"}}', '{} {{"verdict":: true}}'),
        *('{} {{"verdict": true, "note":}}', '{} {{"verdict": true: "note"}}', "[ " * 1000 + "]" * 1000 + "{}"),
    ],
)
def test_brackets_before_and_after_the_answer_do_not_count(around):
    before, after = around.format("|").split("|")
    verdict = token("true", {"false": 0.1})
    reply = with_tokens(before, '{"reason": "so", "verdict": ', verdict, "}", after)
    answer = AspectVerdict(reason="so", verdict=True)
    assert assign_probabilities(answer, reply)
    assert rounded(probabilities_of(answer, "verdict")) == {"true": 0.9, "false": 0.1}


@each("opening", ["[", "{", "[0, 1) so: ", '["a ', '{"a": ['])
def test_brackets_without_an_end_do_not_slow_down_the_search_for_the_answer(opening):
    reply = with_tokens(opening * 20_000, '{"verdict": ', token("true", {"false": 0.1}), "}")
    answer = AspectVerdict(reason="so", verdict=True)
    assert assign_probabilities(answer, reply)  # in seconds, not in hours
    assert rounded(probabilities_of(answer, "verdict")) == {"true": 0.9, "false": 0.1}


@each("rest", ['"b": false, "b": true', '"b": false, "other": {"b": false}', '"c": false', '"b": true', '"b": [false]'])
def test_a_reply_with_other_verdicts_than_the_answer_gives_no_probabilities(rest):
    class Two(BaseModel):
        a: bool
        b: bool

    answer = Two(a=True, b=False)
    assert assign_probabilities(answer, with_tokens('{"a": ', token("true", {"false": 0.1}), f", {rest}}}"))
    expected = [{"true": 0.9, "false": 0.1}, {"false": 1.0}] if rest == '"b": [false]' else [{}, {}]
    assert [rounded(probabilities_of(answer, field)) for field in ("a", "b")] == expected


def test_labels_of_the_users_classes_have_probabilities_in_any_script():
    class Tone(Enum):
        POLITE = "вежливый"
        RUDE = "грубый"

    class Rating(BaseModel):
        tone: Tone
        size: Literal["большой", "малый"]

    first, rest = "вежливый".encode()[:1], "вежливый".encode()[1:]
    reply = with_tokens('{"tone": "', first, rest, '", "size": "', token("мал", {"боль": 0.25}), 'ый"}')
    answer = read(Rating, reply)
    assert rounded(probabilities_of(answer, "tone")) == {"вежливый": 1.0}
    assert rounded(probabilities_of(answer, "size")) == {"малый": 0.75, "большой": 0.25}
    assert answer.model_dump() == {"tone": Tone.POLITE, "size": "малый"}
    assert answer == Rating(tone="вежливый", size="малый")


def test_a_yes_in_another_language_is_a_truth_value():
    reply = with_tokens('{"reason": "", "verdict": "', token("да", {"нет": 0.2}), '"}')
    assert rounded(probabilities_of(read(AspectVerdict, reply), "verdict")) == {"true": 0.8, "false": 0.2}


ABSENT = [None, {}, {"content": None}, {"content": []}, {"content": "no list"}, []]
OF_OTHERS = [
    [{"token": '{"reason": "", "verdict": true}'}],
    [{"token": None, "logprob": None, "bytes": ["x"], "top_logprobs": None}],
    [token("something else entirely")],
    [token('{"reason": "", "verdict": false}')],
    ["text"],
]


@each("logprobs", [*ABSENT, *({"content": items} for items in OF_OTHERS)])
def test_a_reply_without_log_probabilities_or_with_those_of_other_tokens_has_no_probabilities(logprobs):
    reply = AIMessage('{"reason": "", "verdict": true}', response_metadata={"logprobs": logprobs})
    answer = StrictJsonOutputParser(AspectVerdict).read_message(reply)
    assert assign_probabilities(answer, reply) is (logprobs not in [*ABSENT, {"content": ["text"]}])
    assert probabilities_of(answer, "verdict") == {}
    assert least_probability(answer) is None


def test_a_class_of_texts_has_no_verdicts():
    assert not has_verdicts(Statements)
    assert has_verdicts(Verdicts)
    assert has_verdicts(AspectVerdict)


SAMPLE = {"question": "Is it open?", "answer": "It is open. It is free.", "contexts": ["It is open."]}
RUSSIAN_SAMPLE = {"question": "Открыт ли музей?", "answer": "Музей открыт.", "contexts": ["Музей открыт."]}


def judge_with(**replies):
    """Return a judge that answers by the title of the schema that the request names."""

    def reply(messages):
        title = next(title for title in replies if f'"title": "{title}"' in messages[-1].text)
        return replies[title]

    return Judge(RunnableLambda(reply), version="1", probabilities=True)


VERDICTS = with_tokens(
    '{"verdicts": [{"statement": 1, "reason": "", "evidence": ["1.1"], "verdict": "',
    token("supported", {"absent": 0.1}),
    '"}, {"statement": 2, "reason": "", "evidence": [], "verdict": "',
    token("absent", {"supported": 0.3, "contradicted": 0.1}),
    '"}]}',
)
STATEMENTS = AIMessage('{"statements": ["It is open.", "It is free."]}')


def test_faithfulness_is_scored_by_expectation_and_findings_carry_the_probability_of_their_verdicts():
    judge = judge_with(Statements=STATEMENTS, Verdicts=VERDICTS)
    plain, expected = faithfulness(judge), faithfulness(judge, expected=True)
    score = expected.invoke(SAMPLE)
    assert (plain.invoke(SAMPLE).value, score.value) == (0.5, pytest.approx((0.9 + 0.3) / 2))
    assert (
        score.reason
        == "The contexts support 1 of 2 statements; not found: «It is free». By the probabilities, 1.20 of 2."
    )
    assert plain.instrument.partition(".")[0] == score.found_by
    assert plain.instrument != score.instrument
    first, second = (finding for finding in score.findings if finding.kind == "statement")
    assert (first.verdict, round(first.probability, 4)) == ("supported", 0.9)
    assert rounded(second.probabilities) == {"absent": 0.6, "supported": 0.3, "contradicted": 0.1}
    assert round(second.probability, 4) == 0.6


def test_an_aspect_is_scored_by_expectation_and_the_page_of_a_russian_sample_says_so():
    metric = aspect_critique(judge_with(AspectVerdict=RUSSIAN), "coherence", expected=True)
    assert metric.invoke(RUSSIAN_SAMPLE).value == pytest.approx(0.45 / 0.8)
    reply = with_tokens('{"verdicts": [{"context": 1, "reason": "", "useful": ', token("true", {"false": 0.2}), "}]}")
    finding = context_precision(judge_with(ContextVerdicts=reply), against="answer").invoke(RUSSIAN_SAMPLE).findings[0]
    assert rounded(finding.probabilities) == {"useful": 0.8, "not useful": 0.2}


def test_grades_are_scored_by_expectation_within_the_scale():
    reply = with_tokens(
        '{"grades": [{"criterion": "tone", "reason": "", "grade": ', token("2", {"3": 0.2, "9": 0.2, "0": 0.2}), "}]}"
    )
    criteria = [Criterion("tone", "Is it polite?")]
    score = rubric(judge_with(RubricGrades=reply), criteria, expected=True).invoke(RUSSIAN_SAMPLE)
    assert score.value == pytest.approx((2 * 0.5 + 3 * 0.25) / 3)
    assert score.reason == "По шкале от 0 до 3: tone 2. С учётом вероятностей: tone 1.75."


def test_draws_are_averaged():
    replies = iter([0.9, 0.6, 0.6])

    def reply(messages):
        share = next(replies)
        return with_tokens('{"reason": "", "verdict": ', token("true", {"false": 1 - share}), "}")

    judge = Judge(RunnableLambda(reply), version="1", probabilities=True, draws=3)
    score = aspect_critique(judge, "coherence", expected=True).invoke(SAMPLE)
    assert score.value == pytest.approx(0.7)


def test_without_log_probabilities_the_plain_verdict_counts_and_the_report_says_so():
    reply = AIMessage('{"reason": "", "verdict": true}')
    judge = Judge(RunnableLambda(lambda messages: reply), version="1")
    report = evaluate([SAMPLE], aspect_critique(judge, "coherence", expected=True), progress=False)
    score = report.rows[0].scores["coherence"]
    assert (score.value, score.findings[0].probability) == (1.0, None)
    assert [note.partition(" returned ")[2] for note in report.notes] == [
        "no token log-probabilities: its verdicts have no probabilities and count as certain."
    ]


def test_reasons_do_not_speak_of_probabilities_that_are_unknown():
    judge = Judge(OfflineJudge())
    for builder in (faithfulness, rubric):
        plain, expected = builder(judge).invoke(RUSSIAN_SAMPLE), builder(judge, expected=True).invoke(RUSSIAN_SAMPLE)
        assert (expected.value, expected.reason) == (plain.value, plain.reason)


@pytest.mark.parametrize(
    "build", [faithfulness, rubric, lambda judge, **options: aspect_critique(judge, "coherence", **options)]
)
def test_expected_is_true_or_false(build):
    raised = error_of(ConfigError, build, OfflineJudge(), expected="no")
    assert str(raised) == "expected must be True or False, got 'no'"


def test_a_score_with_probabilities_is_rescored_and_stored():
    judge = judge_with(Statements=STATEMENTS, Verdicts=VERDICTS)
    report = evaluate([SAMPLE], faithfulness(judge), progress=False)
    rescored = report.rescore(faithfulness(judge, expected=True))
    assert rescored.rows[0].scores["faithfulness"].value == pytest.approx(0.6)


def test_probabilities_are_part_of_the_instrument_only_if_requested():
    model = RunnableLambda(lambda messages: "")
    assert "probabilities" not in Judge(model, version="1").instrument
    assert Judge(model, version="1", probabilities=True).instrument["probabilities"] is True


def test_another_judge_of_a_metric_that_needs_probabilities_requests_them_too():
    metric = aspect_critique(Judge(RunnableLambda(lambda messages: ""), version="1"), "coherence", expected=True)
    other = Judge(RunnableLambda(lambda messages: RUSSIAN), version="2")
    assert metric.judged_by(other).invoke(RUSSIAN_SAMPLE).value == pytest.approx(0.45 / 0.8)


@each(
    ("text", "following", "label"),
    [
        *(("no", "n", "none"), ("no", " ", "no"), ("no", "", "no"), ("n", "o", None), ("non", "e", "none")),
        ("yes", "s", None),
    ],
)
def test_tokens_that_spell_a_label_may_begin_a_longer_one(text, following, label):
    assert _label_of_tokens(text, following, {"no": "no", "none": "none", "yes": "yes"}) == label


def test_a_label_that_continues_another_one_has_its_own_probability():
    labels = ["no", "none", "no, or not quite"]

    class State(BaseModel):
        state: Literal["no", "none", "no, or not quite"]

    for label, other in permutations(labels, 2):
        answer = read(State, with_tokens('{"state": "', token(label, {other: 0.25}), '"}'))
        assert rounded(probabilities_of(answer, "state")) == {label: 0.75, other: 0.25}, label
    for label in labels:
        splits = [*((label[:at], label[at:]) for at in range(1, len(label))), tuple(label)]
        for parts in splits:
            answer = read(State, with_tokens('{"state": "', *parts, '"}'))
            assert probabilities_of(answer, "state") == {label: 1.0}, parts


def test_a_first_token_may_hold_the_verdict_and_a_probability_is_at_most_one():
    reply = with_tokens(token('{"verdict": true', {'{"verdict": false': 0.25}), "}")
    assert rounded(probabilities_of(read(AspectVerdict, reply), "verdict")) == {"true": 0.75, "false": 0.25}
    above = {**token("true", {"false": 0.5}), "logprob": 0.7}
    above["top_logprobs"][0]["logprob"] = 0.7
    found = probabilities_of(read(AspectVerdict, with_tokens('{"verdict": ', above, "}")), "verdict")
    assert rounded(found) == {"true": 0.6667, "false": 0.3333}


def test_a_verdict_whose_own_token_has_no_probability_is_the_least_probable():
    class State(BaseModel):
        state: Literal["same", "some", "other"]

    unknown = {**token("s", {"other": 0.5}), "logprob": None}
    unknown["top_logprobs"] = unknown["top_logprobs"][1:]
    answer = read(State, with_tokens('{"state": "', unknown, 'ame"}'))
    assert (probabilities_of(answer, "state"), least_probability(answer)) == ({"other": 1.0}, 0.0)


@each(
    ("annotation", "plain"),
    [
        *((bool, bool), (bool | None, bool), (None | int, int), (Optional[bool], bool), (bool | int, bool | int)),  # noqa: UP045
        *((Annotated[bool, "x"], bool), (Annotated[bool | None, "x"], bool), (Annotated[bool, "x"] | None, bool)),
        *((Literal["a"] | None, Literal["a"]), (list[int], list[int]), (bool | int | None, bool | int | None)),
    ],
)
def test_a_type_is_known_without_none_and_metadata(annotation, plain):
    assert plain_type(annotation) == plain


class Part(BaseModel):
    verdict: bool
    reason: str = ""


class Whole(BaseModel):
    part: Part


def test_the_verdicts_of_an_answer_within_an_answer_count_and_their_reasons_do_not():
    true, also, false = (
        Whole(part=Part(verdict=verdict, reason=text)) for verdict, text in ((1, "a"), (1, "b"), (0, "a"))
    )
    assert verdict_key(true) == verdict_key(also) != verdict_key(false)


def test_verdicts_are_compared_item_by_item_whatever_the_order_of_numbered_items():
    one, other = (Verdict(statement=number, reason="", evidence=[], verdict="absent") for number in (1, 2))
    changed = other.model_copy(update={"statement": 1})
    assert verdict_key([one, other]) == verdict_key([other, one]) != verdict_key([one, changed])
    yes, no = Part(verdict=True), Part(verdict=False)
    for first, second in ((yes, no), (one, yes), (yes, one)):
        assert verdict_key([first, second]) != verdict_key([second, first])


# Requests: what a server receives, and what happens if it refuses or ignores them


ONCE = {"progress": False, "retry": RetryPolicy(attempts=1), "max_concurrency": 1}


class TokenServer(OpenAIServer):
    """Server that returns log-probabilities of tokens of three bytes, as vLLM does for a request with `logprobs`."""

    def __init__(self):
        super().__init__(offline)
        self.bodies = []

    def completion(self, request, answer, number):
        self.bodies.append(request.body)
        reply = super().completion(request, answer, number)
        content = answer.text.encode()
        if request.body.get("logprobs"):
            parts = [content[at : at + 3] for at in range(0, len(content), 3)]
            items = [token(part, {"?": 0.05}) for part in parts]
            reply["choices"][0]["logprobs"] = {"content": items}
        return reply


class RefusingServer(OpenAIServer):
    """Server that refuses `logprobs` with a status and a message."""

    def __init__(self, status, message):
        super().__init__(offline)
        self.refusal = (status, message)

    def _check(self, request):
        super()._check(request)
        if "logprobs" in request.body:
            self.count(self.refused, "logprobs")
            raise Refused(*self.refusal)


def judge_of(server: ChatServer, **options):
    model = ChatOpenAI(base_url=f"{server.url}/v1", api_key="sk-test", model="m", max_retries=0)
    return Judge(model, **{"probabilities": True, **options})


@pytest.mark.parametrize("mode", ["json_schema", "json_mode", "prompt"])
def test_a_server_receives_the_request_and_its_tokens_become_probabilities(mode):
    with TokenServer() as server:
        report = evaluate([RUSSIAN_SAMPLE], faithfulness(judge_of(server, mode=mode)), **ONCE)
        assert server.bodies
        assert all(body["logprobs"] and body["top_logprobs"] == 20 for body in server.bodies)
    findings = report.rows[0].scores["faithfulness"].findings
    assert [finding.probabilities for finding in findings] == [{"supported": 1.0}]
    assert not [note for note in report.notes if "probabilities" in note]


def test_a_judge_without_the_option_requests_none():
    with TokenServer() as server:
        evaluate([RUSSIAN_SAMPLE], faithfulness(judge_of(server, probabilities=False)), **ONCE)
        assert not any("logprobs" in body for body in server.bodies)


def test_a_copy_that_requests_them_counts_towards_the_judges_limit_of_concurrent_calls():
    judge = Judge(OfflineJudge(), max_concurrency=1)
    copy = request_probabilities(judge, True)
    assert copy.probabilities
    assert copy._endpoint.gates == judge._endpoint.gates != Judge(OfflineJudge(), max_concurrency=1)._endpoint.gates


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "'logprobs' is not supported with this model."),
        (403, "You are not allowed to request logprobs from this model"),
        (422, "body.logprobs: extra fields not permitted"),
    ],
)
def test_a_server_that_refuses_is_asked_without_and_the_report_says_so(status, message):
    with RefusingServer(status, message) as server:
        judge = judge_of(server)
        report = evaluate([RUSSIAN_SAMPLE] * 3, aspect_critique(judge, "coherence", expected=True), **ONCE)
        assert server.refused == {"logprobs": 1}
    assert [row.scores["coherence"].value for row in report.rows] == [1.0, 1.0, 1.0]
    assert judge._endpoint.capabilities.mode.rung == "json_schema"
    (note,) = [note for note in report.notes if "token log-probabilities" in note]
    assert note.endswith(
        " returned no token log-probabilities: its verdicts have no probabilities and count as certain."
    )
