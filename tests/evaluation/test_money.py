"""Money of runs, plans and test sets."""

import pytest
from helpers.writers import Ring, documents
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_rageval import (
    OfflineJudge,
    Report,
    Sample,
    TestsetGenerator,
    context_recall,
    evaluate,
    faithfulness,
    plan,
)

SAMPLES = [
    Sample(
        question=f"Когда основан город {n}?",
        answer=f"Город основан в {1100 + n} году.",
        contexts=[f"Город основан в {1100 + n} году."],
        references=[f"В {1100 + n} году."],
    )
    for n in range(4)
]


class Metered(BaseChatModel):
    """The offline judge with a name and with 1,000 input tokens, 400 of them cached, and 100 output tokens a call."""

    model_name: str = "m"
    reports: bool = True

    @property
    def _llm_type(self):
        return "metered"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        reply = OfflineJudge().invoke(messages)
        tokens = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
        tokens["input_token_details"] = {"cache_read": 400}
        message = AIMessage(reply.content, usage_metadata=tokens if self.reports else None)
        return ChatResult(generations=[ChatGeneration(message=message)])


def run(price, model=None, **options):
    judge = model or Metered()
    return evaluate(SAMPLES, [faithfulness(judge), context_recall(judge)], price=price, progress=False, **options)


def test_a_report_has_the_money_of_each_metric_and_of_all():
    report = run({"m": (10.0, 20.0, 1.0)})
    per_call = (600 * 10 + 400 * 1 + 100 * 20) / 1e6
    summary = report.summary()
    for metric in summary.values():
        assert metric.money == pytest.approx(per_call * metric.calls)
    assert report.usage.money == pytest.approx(per_call * report.usage.calls)
    assert report.usage.calls == 16
    assert "0.0672 money" in repr(report)
    assert "<th>money</th>" in report._repr_html_().replace(' scope="col"', "")


def test_without_prices_there_is_no_money_anywhere(tmp_path):
    report = run(None)
    assert report.usage.money is None
    report.to_jsonl(tmp_path / "r.jsonl")
    assert "money" not in repr(report) + report._repr_html_() + (tmp_path / "r.jsonl").read_text(encoding="utf-8")


def test_a_price_of_another_model_leaves_the_money_unknown_with_a_note():
    report = run({"gpt": (1.0, 2.0)})
    assert report.usage.money is None
    assert "The money is unknown: m has no price (there are prices of gpt)." in report.notes


def test_a_model_that_reports_no_tokens_leaves_the_money_unknown_with_a_note():
    report = run({"m": (1.0, 2.0)}, Metered(reports=False))
    assert report.usage.money is None
    assert "The money is unknown: m reports no tokens." in report.notes


def test_the_money_is_in_the_file_of_the_report(tmp_path):
    report = run((10.0, 20.0))
    report.to_jsonl(tmp_path / "r.jsonl")
    report.to_html(tmp_path / "r.html")
    assert Report.load(tmp_path / "r.jsonl").usage.money == report.usage.money
    assert "стоимость" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_resumed_run_counts_what_its_stored_scores_cost(tmp_path):
    first = run((10.0, 20.0), journal=tmp_path / "j.db")
    again = run((10.0, 20.0), journal=tmp_path / "j.db")
    assert again.usage.money == pytest.approx(first.usage.money)


def test_a_plan_has_the_money_of_its_tokens():
    judge = Metered()
    estimate = plan(SAMPLES, [faithfulness(judge), context_recall(judge)], price={"m": (10.0, 20.0)})
    for metric in [*estimate.values(), estimate.total]:
        assert metric.money == pytest.approx((metric.input_tokens * 10 + metric.output_tokens * 20) / 1e6)
    assert estimate.money == estimate.total.money
    assert " money" in repr(estimate)
    unpriced = plan(SAMPLES, faithfulness(judge), price={"gpt": (1.0, 2.0)})
    assert unpriced.money is None
    assert unpriced.notes == ["The money is unknown: m has no price (there are prices of gpt)."]
    assert "money" not in repr(plan(SAMPLES, faithfulness(judge)))


def test_a_generator_counts_money():
    given = TestsetGenerator(
        Metered(), embeddings=Ring(), distribution={"simple": 1}, price={"gpt": (1, 2)}, progress=False
    )
    assert (
        "The money is unknown: m has no price (there are prices of gpt)." in given.generate(documents(6), size=1).notes
    )
