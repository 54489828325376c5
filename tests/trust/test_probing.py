"""`rageval probe`: what an endpoint can do, in at most five small requests; a judge with a probe asks nothing again."""

import json

import pytest
from helpers.each import each
from helpers.manual import ROOT
from helpers.offline import offline, rag_samples
from helpers.servers.chat import Faults
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Response
from langchain_openai import ChatOpenAI

from langchain_rageval import ConfigError, Judge, evaluate, faithfulness, load_judge
from langchain_rageval.cli.main import run as cli
from langchain_rageval.judge.endpoint import EndpointProbe
from langchain_rageval.trust.probing import probe_judge


class Engine(OpenAIServer):
    """Plays a server by the marks of its replies: the list of models, headers, cached tokens, log-probabilities."""

    def __init__(self, *, models=None, headers=None, cached=None, has_tokens=False, **options):
        super().__init__(offline, **options)
        self.listed, self.headers, self.cached, self.has_tokens = 0, headers or {}, cached, has_tokens
        if models is not None:
            self.routes["/v1/models"] = lambda _: self.list(models)

    def list(self, models):
        self.listed += 1
        return Response(200, json.dumps({"object": "list", "data": models}).encode())

    def chat(self, received):
        response = super().chat(received)
        return Response(response.status, response.content, headers=self.headers)

    def completion(self, request, answer, number):
        reply = super().completion(request, answer, number)
        if self.cached is not None:
            reply["usage"]["prompt_tokens_details"] = {"cached_tokens": self.cached if number > 1 else 0}
        if self.has_tokens and request.body.get("logprobs"):
            tokens = [{"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": []} for text in answer.text]
            reply["choices"][0]["logprobs"] = {"content": tokens}
        return reply


def model(server):
    return ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0)


LLAMA = {"id": "m", "meta": {"n_ctx_train": 8192}}
ENGINES = {
    "llama-server": {"build": "b4000-0123456", "cached": 80, "has_tokens": True, "models": [LLAMA]},
    "vLLM": {"cached": 0, "has_tokens": True, "models": [{"id": "m", "max_model_len": 32768}]},
    "LiteLLM": {"headers": {"x-ratelimit-limit-requests": "500", "x-ratelimit-limit-tokens": "30000"}, "models": []},
    "LM Studio": {"build": "m", "models": [{"id": "m"}, {"id": "other"}]},
    "Ollama": {"build": "fp_ollama", "models": [{"id": "m", "owned_by": "library"}]},
    "JSON only": {"rungs": {"json_mode"}},
    "words only": {"rungs": {"prompt"}},
}
FOUND = {
    "llama-server": {"mode": "json_schema", "context_window": 8192, "prefix_cache": True, "log_probabilities": True},
    "vLLM": {"mode": "json_schema", "context_window": 32768, "prefix_cache": False, "log_probabilities": True},
    "LiteLLM": {"mode": "json_schema", "requests_per_minute": 500, "tokens_per_minute": 30000, "prefix_cache": None},
    "LM Studio": {"mode": "json_schema", "context_window": None, "prefix_cache": None, "log_probabilities": False},
    "Ollama": {"mode": "json_schema", "context_window": None},
    "JSON only": {"mode": "json_mode", "narrowed": False, "grammar": False},
    "words only": {"mode": "prompt", "narrowed": False, "grammar": False},
}


@each("name", ENGINES)
def test_an_endpoint_is_known_after_at_most_five_requests_as_the_documentation_shows(name):
    with Engine(**ENGINES[name]) as server:
        probe = probe_judge(model(server))
        assert server.calls + server.listed <= probe.requests <= 5
    assert {fact: getattr(probe, fact) for fact in FOUND[name]} == FOUND[name]
    assert probe.options["mode"] == probe.mode
    assert ("max_context_tokens" in probe.options) == (probe.context_window is not None)
    if "rungs" not in ENGINES[name]:
        words = {True: "yes", False: "no"}
        cells = [probe.mode, words[probe.grammar], str(probe.context_window or "unknown")]
        cells += [words[probe.prefix_cache is not None], words[probe.log_probabilities]]
        cells.append("stated" if probe.requests_per_minute else "unknown")
        page = (ROOT / "docs/how-to/vllm.md").read_text(encoding="utf-8")
        lines = [line for line in page.splitlines() if line.endswith(f"| {' | '.join(cells)} |")]
        assert len([line for line in lines if name in line.split("|")[1]]) == 1


def test_a_schema_that_costs_seconds_when_it_is_new_is_no_grammar():
    seen = set()

    def slow(request):
        schema = json.dumps(request.body.get("response_format"), sort_keys=True)
        server.latency = 0.0 if schema in seen else 1.2
        seen.add(schema)
        return offline(request)

    with OpenAIServer(slow) as server:
        probe = probe_judge(model(server))
    assert (probe.narrowed, probe.grammar) == (True, False)


def test_a_judge_with_a_probe_asks_for_nothing_that_it_knows(tmp_path):
    with Engine(rungs={"json_mode"}) as server:
        probe_judge(model(server)).to_json(tmp_path / "probe.json")
        server.refused.clear()
        judge = Judge(model(server), probe=tmp_path / "probe.json")
        report = evaluate(rag_samples(2), faithfulness(judge), progress=False)
        assert (report.failures(), server.refused.total()) == ([], 0)
    probe = EndpointProbe.load(tmp_path / "probe.json")
    assert Judge(judge.model, probe=probe).instrument == Judge(judge.model).instrument
    assert Judge(judge.model, probe=probe, mode="prompt")._endpoint.first_mode.rung == "prompt"
    assert load_judge("vllm:m", base_url="http://x/v1", probe=probe)._endpoint.first_mode.rung == "json_mode"


def test_an_endpoint_that_gives_no_valid_reply_is_an_error_with_its_cause():
    with Engine(faults=Faults.rates(seed=1, unauthorized=1.0)) as server, pytest.raises(ConfigError) as caught:
        probe_judge(model(server))
    assert str(caught.value).startswith("no request got a valid reply: OpenAIAuthenticationError: ")


def test_the_command_gives_the_hint_and_the_address_of_a_server_that_it_cannot_reach(capsys):
    with Engine() as server:
        address = server.url
    for command in (["probe"], ["qualify", "--quick", "--language", "ru"]):
        assert cli([*command, "--judge", "vllm:m", "--base-url", f"{address}/v1"]) == 2
        shown = capsys.readouterr().err
        assert f"({address}/v1/chat/completions)" in shown
        assert shown.count("(is the server running, and is --base-url right?)") == 1


@each("content", ["{", "[]", '{"rageval_probe": {}}', '{"rageval_report": {}}'])
def test_a_file_that_is_no_probe_is_refused(tmp_path, content):
    path = tmp_path / "probe.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"probe.json is not a probe .*: write one with `rageval probe --out FILE`"):
        EndpointProbe.load(path)


def test_the_command_shows_and_writes_what_commands_with_a_judge_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    samples = "".join(f"{sample.model_dump_json()}\n" for sample in rag_samples(2))
    (tmp_path / "a.jsonl").write_text(samples, encoding="utf-8")
    with Engine(rungs={"json_mode"}) as server:
        judge = ["--judge", "vllm:m", "--base-url", f"{server.url}/v1"]
        assert cli(["probe", *judge, "--out", "probe.json"]) == 0
        shown = capsys.readouterr().out
        assert "json_mode" in shown
        assert "Options that fit: Judge(model, mode='json_mode', grammar=False)" in shown
        assert cli(["probe", *judge, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["options"] == {"mode": "json_mode", "grammar": False}
        server.refused.clear()
        words = ["--metrics", "faithfulness", "--judge-probe", "probe.json", "--quiet", "--journal", "run.db"]
        assert cli(["evaluate", "a.jsonl", *judge, *words]) == 0
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert cli(["resume", "../run.db"]) == 0
        assert server.refused.total() == 0
