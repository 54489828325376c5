"""Requests for token log-probabilities: what a server receives, and what happens if it refuses or ignores them."""

import pytest
from helpers.offline import offline
from helpers.scripted import token
from helpers.servers.chat import ChatServer
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Refused
from langchain_openai import ChatOpenAI

from langchain_rageval import Judge, OfflineJudge, RetryPolicy, aspect_critique, evaluate, faithfulness
from langchain_rageval.judge.panels import request_probabilities

SAMPLE = {"question": "Открыт ли музей?", "answer": "Музей открыт.", "contexts": ["Музей открыт."]}
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
        report = evaluate([SAMPLE], faithfulness(judge_of(server, mode=mode)), **ONCE)
        assert server.bodies
        assert all(body["logprobs"] and body["top_logprobs"] == 20 for body in server.bodies)
    findings = report.rows[0].scores["faithfulness"].findings
    assert [finding.probabilities for finding in findings] == [{"supported": 1.0}]
    assert not [note for note in report.notes if "probabilities" in note]


def test_a_judge_without_the_option_requests_none():
    with TokenServer() as server:
        evaluate([SAMPLE], faithfulness(judge_of(server, probabilities=False)), **ONCE)
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
        report = evaluate([SAMPLE] * 3, aspect_critique(judge, "coherence", expected=True), **ONCE)
        assert server.refused == {"logprobs": 1}
    assert [row.scores["coherence"].value for row in report.rows] == [1.0, 1.0, 1.0]
    assert judge._endpoint.capabilities.mode.rung == "json_schema"
    (note,) = [note for note in report.notes if "token log-probabilities" in note]
    assert note.endswith(
        " returned no token log-probabilities: its verdicts have no probabilities and count as certain."
    )
