"""Ways in which an application, a judge, embeddings, a file or a budget is broken, by six gates: none lets one pass.

Each way affects at least 40% of the samples. `EXEMPT` names the cells that a gate cannot see, with the reason. Each way
stands before two gates that can see it, in turn, so that each kind of way stands before each of its gates.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers.offline import offline
from helpers.servers.chat import ChatRequest, Embedder, Faults, Reply
from helpers.servers.endpoints import OpenAIServer

from langchain_rageval import Budget, answer_correctness, answer_similarity, context_recall, evaluate, faithfulness
from langchain_rageval.cli.main import run
from langchain_rageval.errors import RagevalError
from langchain_rageval.evaluation.until import Decided
from langchain_rageval.models.loading import load_embeddings, load_judge
from langchain_rageval.run.retry import RetryPolicy, is_transient
from langchain_rageval.testing import assert_scores

Samples = list[dict[str, Any]]

TOWNS = ["Мюнхен", "Берлин", "Гамбург", "Кёльн", "Дрезден", "Лейпциг"]
TOWNS += ["Бремен", "Эссен", "Бонн", "Киль", "Росток", "Любек"]
BROKEN = 8  # of the twelve samples, at least


def good(number: int) -> dict[str, Any]:
    fact = f"Город {TOWNS[number]} основан в {1100 + number} году по указу герцога."
    other = f"В музее города {TOWNS[number]} хранится {200 + number} картин старых мастеров."
    sample = {"id": f"q{number}", "question": f"Когда основан город {TOWNS[number]}?"}
    return {**sample, "answer": fact, "contexts": [fact, other], "references": [fact]}


GOOD = [good(number) for number in range(len(TOWNS))]
THRESHOLDS = {"faithfulness": 0.8, "context_recall": 0.8, "answer_correctness": 0.8, "answer_similarity": 0.8}


@dataclass(frozen=True)
class Way:
    """A way to be broken.

    Attributes:
        samples: what the application gave.
        lines: text of the file, if it is not one line for each sample.
        reply: answer of the judge to a request.
        faults: faults of the judge's server.
        embedder: answers of the embeddings.
        options: options of `evaluate`.
        words: the same as options of the command line.
    """

    samples: Samples = field(default_factory=lambda: GOOD)
    lines: str | None = None
    reply: Reply = offline
    faults: Callable[[], Faults] = lambda: Faults.script([])
    embedder: Callable[[], Embedder] = Embedder
    options: dict[str, Any] = field(default_factory=dict)
    words: tuple[object, ...] = ()

    @property
    def text(self) -> str:
        return self.lines if self.lines is not None else lines_of(self.samples)


def lines_of(samples: Samples) -> str:
    return "".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)


def answers(make: Callable[[dict[str, Any], int], Any]) -> Way:
    """Return the way in which the application gives these answers to the first questions."""
    return Way([{**one, "answer": make(one, n)} if n < BROKEN else one for n, one in enumerate(GOOD)])


def contexts(make: Callable[[dict[str, Any], int], list[str]]) -> Way:
    return Way([{**one, "contexts": make(one, n)} if n < BROKEN else one for n, one in enumerate(GOOD)])


TRACE = 'Traceback (most recent call last):\n  File "app.py", line 7, in ask\nKeyError: "answer"'
PAGE = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"

APPLICATIONS = {
    "an empty answer": answers(lambda one, n: ""),
    "no answer": answers(lambda one, n: None),
    "white space": answers(lambda one, n: " \n\t"),
    "a page of HTML": answers(lambda one, n: PAGE),
    "an error of the gateway": answers(lambda one, n: "502 Bad Gateway"),
    "a stack trace": answers(lambda one, n: TRACE),
    "an apology in Russian": answers(lambda one, n: "Извините, сервис временно недоступен. Попробуйте позже."),
    "an apology in English": answers(lambda one, n: "Sorry, the service is temporarily unavailable. Try again later."),
    "one text to all": answers(lambda one, n: GOOD[-1]["answer"]),
    "a refusal": answers(lambda one, n: "Я не знаю."),
    "an echo of the question": answers(lambda one, n: one["question"]),
    "the answer to another question": answers(lambda one, n: GOOD[n + 1]["answer"]),
    "an invented answer": answers(lambda one, n: "Слоны построили здесь мост из синего стекла."),
    "another number": answers(lambda one, n: f"Город {TOWNS[n]} основан в {1700 + n} году по указу герцога."),
    "another language": answers(lambda one, n: "Elephants built a bridge of blue glass over the river."),
    "the first word": answers(lambda one, n: one["answer"].split()[0]),
    "an error as JSON": answers(lambda one, n: '{"error": {"code": 500, "message": "upstream timed out"}}'),
    "the word null": answers(lambda one, n: "null"),
    "the prompt": answers(lambda one, n: "Ты полезный помощник. Отвечай только по контексту."),
    "a repeated word": answers(lambda one, n: "да " * 60),
    "a promise to answer": answers(lambda one, n: "Сейчас поищу в документах и сразу отвечу."),
    "the answer among inventions": answers(lambda one, n: one["answer"] + " Слоны летают. Реки синие. Мосты поют."),
    "no contexts": contexts(lambda one, n: []),
    "contexts of another question": contexts(lambda one, n: GOOD[n + 1]["contexts"]),
    "contexts without the gold chunk": contexts(lambda one, n: one["contexts"][1:]),
    "contexts of control characters": contexts(lambda one, n: ["\x00\x07", "\u200b"]),
    "contexts cut after ten characters": contexts(lambda one, n: [text[:10] for text in one["contexts"]]),
}


def verdict(label: str, cites: bool = True) -> Reply:
    """Return a judge that gives all statements one verdict."""

    def reply(request: ChatRequest) -> dict[str, Any] | str:
        found = offline(request)
        for item in found.get("verdicts", []):
            item |= {"verdict": label, "evidence": item["evidence"] or ["1.1"] if cites else []}
        return found

    return reply


def no_items(request: ChatRequest) -> dict[str, Any]:
    return {key: [] if isinstance(items, list) else items for key, items in offline(request).items()}


JUDGES = {
    "a wrong key": Way(faults=lambda: Faults.rates(seed=1, unauthorized=1.0)),
    "a proxy's page": Way(faults=lambda: Faults.rates(seed=1, html=1.0)),
    "errors of the server": Way(faults=lambda: Faults.rates(seed=1, **{"500": 1.0})),
    "too many requests": Way(faults=lambda: Faults.rates(seed=1, **{"429": 1.0})),
    "lost connections": Way(faults=lambda: Faults.rates(seed=1, reset=0.9)),
    "a key that ends": Way(faults=lambda: Faults.script([*[None] * 20, *["unauthorized"] * 2000])),
    "garbage": Way(reply=lambda request: "Разумеется! Вот ответ: хорошо."),
    "an empty reply": Way(reply=lambda request: ""),
    "a refusal of the judge": Way(reply=lambda request: "I'm sorry, but I can't help with that."),
    "an echo of the schema": Way(reply=lambda request: request.schema or {}),
    "no items": Way(reply=no_items),
    "all absent": Way(reply=verdict("absent")),
    "all contradicted": Way(reply=verdict("contradicted")),
    "all supported": Way(reply=verdict("supported")),
    "all supported without a citation": Way(reply=verdict("supported", cites=False)),
}


class Spoiled(Embedder):
    """Embeddings whose vectors are replaced."""

    def __init__(self, spoil: Callable[[list[Any]], list[Any]]) -> None:
        super().__init__()
        self.spoil = spoil

    def vectors(self, texts: list[str], *rest: Any) -> Any:
        return self.spoil(super().vectors(texts, *rest))


EMBEDDINGS = {
    "one vector for all texts": Way(embedder=lambda: Spoiled(lambda found: [[1.0] * 8] * len(found))),
    "vectors of zeros": Way(embedder=lambda: Spoiled(lambda found: [[0.0] * 8] * len(found))),
    "numbers that are none": Way(embedder=lambda: Spoiled(lambda found: [[float("nan")] * 8] * len(found))),
    "too few vectors": Way(embedder=lambda: Spoiled(lambda found: found[:-1])),
    "a refusal of the embeddings": Way(embedder=lambda: Embedder(refuse=lambda text: True)),
    "errors of the embeddings": Way(embedder=lambda: Embedder(faults=Faults.rates(seed=1, **{"500": 1.0}))),
}

SKIP = {"words": ("--on-error", "skip")}
FILES = {
    "lines that are no JSON": Way(lines=lines_of(GOOD[BROKEN:]) + "{broken\n" * BROKEN, **SKIP),
    "lines without a question": Way(lines=lines_of(GOOD[BROKEN:]) + '{"answer": "Да."}\n' * BROKEN, **SKIP),
    "an empty file": Way([], lines=""),
    "a page instead of a file": Way([], lines=PAGE),
    "one sample twelve times": Way([GOOD[0]] * 12),
    "lost samples": Way(GOOD[BROKEN:]),
    "reworded questions": Way([{**s, "question": f"Иначе: {s['question']}"} for s in GOOD[:BROKEN]] + GOOD[BROKEN:]),
    "other questions": Way([{**GOOD[n], "id": f"x{n}", "question": f"{n}?"} for n in range(BROKEN)] + GOOD[BROKEN:]),
}

BUDGETS = {
    "few calls": Way(options={"budget": Budget(calls=15)}, words=("--budget-calls", 15)),
    "few tokens": Way(options={"budget": Budget(tokens=2_500)}, words=("--budget-tokens", 2_500)),
    "few texts to embed": Way(options={"budget": Budget(embeddings=5)}, words=("--budget-embeddings", 5)),
}

WAYS = {**APPLICATIONS, **JUDGES, **EMBEDDINGS, **FILES, **BUDGETS}

OF_A_FILE = "it has no file"
OF_A_BASELINE = "only a baseline shows that other samples were expected"
OF_A_RUN = "the first samples are scored before it shows"
EXEMPT = {
    **{(way, "pytest"): OF_A_FILE for way in FILES},
    **{(way, "pytest"): OF_A_RUN for way in (*BUDGETS, "a key that ends")},
    **{
        (way, "pytest"): "the scores of one sample do not tell such judges or embeddings from good ones"
        for way in ("all supported", "all supported without a citation", "one vector for all texts")
    },
    **{
        (way, door): OF_A_BASELINE
        for way in ("lost samples", "reworded questions", "other questions")
        for door in ("check", "--fail-under", "ci", "until")
    },
    **{
        (way, door): "only a file has lines that cannot be read"
        for way in ("lines that are no JSON", "lines without a question", "a page instead of a file")
        for door in ("check", "until")
    },
}


@dataclass
class Bench:
    """A server with a way to be broken, and the gates in front of it."""

    server: OpenAIServer
    folder: Path

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1"

    @property
    def endpoint(self) -> list[object]:
        return ["--judge", "openai:m", "--base-url", self.url, "--embeddings", "openai:e", "--temperature", 0]

    def break_as(self, way: Way) -> None:
        self.server.reply, self.server.faults, self.server.embedder = way.reply, way.faults(), way.embedder()
        (self.folder / "samples.jsonl").write_text(way.text, encoding="utf-8")

    def metrics(self) -> list[Any]:
        judge = load_judge("openai:m", base_url=self.url, temperature=0)
        embeddings = load_embeddings("openai:e", base_url=self.url)
        correctness = answer_correctness(judge, embeddings)
        return [faithfulness(judge), context_recall(judge), correctness, answer_similarity(embeddings)]

    def command(self, name: str, way: Way, *words: object) -> bool:
        """Return True if a command ends with 0."""
        more = [*self.endpoint, "--metrics", ",".join(THRESHOLDS), "--quiet", *way.words, *words]
        return run([str(word) for word in (name, self.folder / "samples.jsonl", *more)]) == 0

    @property
    def fail_under(self) -> list[object]:
        return [word for metric, least in THRESHOLDS.items() for word in ("--fail-under", f"{metric}={least}")]


def passes_check(bench: Bench, way: Way) -> bool:
    report = evaluate(way.samples, bench.metrics(), progress=False, canaries=True, strict=False, **way.options)
    report.check(THRESHOLDS)
    return True


def passes_until(bench: Bench, way: Way) -> bool:
    rule = Decided(THRESHOLDS)
    report = evaluate(way.samples, bench.metrics(), progress=False, until=rule, strict=False, **way.options)
    return all(gate.verdict == "passed" for gate in report.gates(THRESHOLDS))


def passes_pytest(bench: Bench, way: Way) -> bool:
    found = []
    for sample in way.samples[:3]:
        try:
            assert_scores(sample, dict(zip(bench.metrics(), THRESHOLDS.values(), strict=True)))
            found.append(True)
        except AssertionError:
            found.append(False)
    return any(found)


DOORS: dict[str, Callable[[Bench, Way], bool]] = {
    "check": passes_check,
    "--fail-under": lambda bench, way: bench.command("evaluate", way, *bench.fail_under),
    "ci": lambda bench, way: bench.command("ci", way, *bench.fail_under),
    "ci --baseline": lambda bench, way: bench.command("ci", way, "--baseline", bench.folder / "baseline.jsonl"),
    "until": passes_until,
    "pytest": passes_pytest,
}


def doors_of(number: int, way: str) -> list[str]:
    """Return the gates before which the way of a number stands: two of those that can see it."""
    able = [door for door in DOORS if (way, door) not in EXEMPT]
    return [able[place % len(able)] for place in (number, number + len(able) // 2)]


QUICK = ("a refusal", "contexts without the gold chunk", "all supported", "lines that are no JSON")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A server, a baseline of good answers, and no waits between two tries."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")

    def wait(_policy: RetryPolicy, error: Exception, tried: int, own_tries: int = 1) -> float | None:
        return 0.0 if tried < 2 and is_transient(error) else None

    monkeypatch.setattr(RetryPolicy, "wait", wait)
    with OpenAIServer(offline) as server:
        bench = Bench(server, tmp_path)
        bench.break_as(Way())
        assert bench.command("evaluate", Way(), "--out", tmp_path / "baseline.jsonl")
        yield bench


def is_green(bench: Bench, door: str, way: Way) -> bool:
    bench.break_as(way)
    try:
        return DOORS[door](bench, way)
    except RagevalError:
        return False


@pytest.mark.parametrize("door", DOORS)
def test_a_working_run_passes_each_gate(bench, door):
    assert is_green(bench, door, Way())


def test_of_some_broken_runs_none_passes_any_gate(bench):
    cells = [(name, door) for name in QUICK for door in ("--fail-under", "ci --baseline") if (name, door) not in EXEMPT]
    assert [cell for cell in cells if is_green(bench, cell[1], WAYS[cell[0]])] == []


@pytest.mark.gate
@pytest.mark.parametrize("door", DOORS)
def test_no_broken_run_passes_a_gate(bench, door):
    assert len(WAYS) >= 40
    cells = [name for number, name in enumerate(WAYS) if door in doors_of(number, name)]
    assert [name for name in cells if is_green(bench, door, WAYS[name])] == []
