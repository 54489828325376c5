"""Canaries: plain statements with known verdicts, asked of the judges of a run with a gate."""

import json

import pytest
from helpers.doors import report_by
from helpers.each import each
from helpers.offline import offline
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import BelowThreshold, Decided, Judge, OfflineJudge, Report, evaluate, faithfulness
from langchain_rageval.cli.main import run
from langchain_rageval.data.notes import code_of
from langchain_rageval.evaluation.canaries import items_in
from langchain_rageval.testing import ScriptedJudge

OFFLINE = OfflineJudge()
SAMPLES = [
    {"question": f"Когда платят взнос {n}?", "answer": "Взнос платят в марте.", "contexts": ["Взнос платят в марте."]}
    for n in range(12)
]


class Spy:
    """A judge that answers as the offline one, and calls every n-th statement supported or not at will."""

    def __init__(self, change=lambda text: text):
        self.asked = []
        self._change = change

    def judge(self):
        def answer(messages):
            self.asked.append(messages)
            return AIMessage(self._change(OFFLINE.invoke(messages).text))

        return Judge(RunnableLambda(answer), version="spy")


def lenient(text):
    return text.replace('"absent"', '"supported"').replace('"contradicted"', '"supported"')


@each("language", ["en", "ru", "de"])
def test_half_of_the_first_and_of_all_items_are_true_and_no_two_are_equal(language):
    items = items_in(language)
    assert [truth for _, truth in items] == [True, False] * 12
    assert len({sample.answer for sample, _ in items}) == 24
    assert (items == items_in("en")) == (language != "ru")


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_a_good_judge_is_asked_eight_and_the_report_says_so(door, tmp_path):
    spy = Spy()
    report = await report_by(door, SAMPLES, faithfulness(spy.judge()), canaries=True)
    found = report.canaries
    assert (found.asked, found.right, found.failed) == (8, 8, [])
    assert len(spy.asked) == report.usage.calls == report.summary()["faithfulness"].calls + 8
    assert "canaries-right" in map(code_of, report.notes)
    report.to_jsonl(tmp_path / "r.jsonl")
    assert Report.load(tmp_path / "r.jsonl").canaries == found
    report.check({"faithfulness": 0.8})


def test_a_judge_that_supports_everything_fails_every_gate():
    report = evaluate(SAMPLES, faithfulness(Spy(lenient).judge()), canaries=True, progress=False)
    assert (report.canaries.asked, report.canaries.right) == (8, 4)
    assert len(report.canaries.failed) == 1
    with pytest.raises(BelowThreshold, match=r"erred too often .* 4 of 8 were right\. \[canaries-failed\]") as caught:
        report.check({"faithfulness": 0.8})
    assert "canaries-failed" in caught.value.codes
    report.check({"faithfulness": 0.8}, allow={"canaries-failed", "no-citations"})


def erring_on(wrong):
    """Return a change of replies that turns the verdicts of some of the canaries, by their number."""
    texts = [sample.answer for sample, _ in items_in("ru")]

    def answer(messages):
        reply = OFFLINE.invoke(messages).text
        human = messages[-1].text
        named = (n for n, text in enumerate(texts) if f'"statement":1,"text":"{text}"' in human)
        number = next(named, None)
        if number is None or number not in wrong or "verdicts" not in reply:
            return AIMessage(reply)
        verdicts = json.loads(reply)
        for verdict in verdicts["verdicts"]:
            is_supported = verdict["verdict"] == "supported"
            verdict |= {
                "verdict": "absent" if is_supported else "supported",
                "evidence": [] if is_supported else ["1.1"],
            }
        return AIMessage(json.dumps(verdicts, ensure_ascii=False))

    return Judge(RunnableLambda(answer), version="erring", attempts=1)


@each("wrong", [(), (0,), (1, 5), (0, 1, 2), (0, 9, 12), (0, 9, 12, 20), (9, 12, 20)])
def test_two_errors_of_eight_ask_for_more_and_three_of_24_are_forgiven(wrong):
    report = evaluate(SAMPLES[:1], faithfulness(erring_on(wrong)), canaries=True, progress=False)
    n_asked = 24 if sum(number < 8 for number in wrong) in (1, 2) else 8
    errors = sum(number < n_asked for number in wrong)
    assert (report.canaries.asked, report.canaries.asked - report.canaries.right) == (n_asked, errors)
    assert bool(report.canaries.failed) == (errors > (2 if n_asked == 8 else 3))


@each(
    ("options", "asked"),
    [({}, 0), ({"canaries": False, "until": True}, 0), ({"until": True}, 8), ({"canaries": True}, 8)],
)
def test_they_are_asked_if_a_gate_is_given_to_the_run(options, asked):
    spy = Spy()
    until = Decided({"faithfulness": 0.5}) if options.get("until") else None
    report = evaluate(SAMPLES, faithfulness(spy.judge()), **{**options, "until": until}, progress=False)
    assert (report.canaries.asked if report.canaries else 0) == asked


@each("judge", [OfflineJudge(), ScriptedJudge("nothing", repeat=True)])
def test_a_judge_without_a_model_is_never_asked(judge):
    report = evaluate(SAMPLES[:1], faithfulness(judge), canaries=True, progress=False)
    assert report.canaries is None


@pytest.mark.parametrize(
    ("words", "asked"), [([], 0), (["--fail-under", "faithfulness=0.5"], 8), (["--no-canaries"], 0)]
)
def test_the_command_line_asks_with_a_gate(words, asked, openai_server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    server = openai_server(offline)
    path, out = tmp_path / "samples.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in SAMPLES), encoding="utf-8")
    gates = ["--fail-under", "faithfulness=0.5"] if words == ["--no-canaries"] else []
    judge = ["--judge", "openai:m", "--base-url", f"{server.url}/v1"]
    assert run([str(word) for word in ("evaluate", path, *judge, *gates, *words, "--quiet", "--out", out)]) == 0
    report = Report.load(out)
    assert (report.canaries.asked if report.canaries else 0) == asked
