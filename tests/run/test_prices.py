"""Prices of models, and the money of runs, plans and test sets."""

import pytest
from helpers.each import each, error_of
from helpers.samples import town
from helpers.writers import Ring, documents
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_rageval import ConfigError, OfflineJudge, TestsetGenerator, context_recall, evaluate, faithfulness, plan
from langchain_rageval.data.schema import Usage
from langchain_rageval.run.progress import Progress
from langchain_rageval.run.usage import PriceList, UsageMeter, format_money, names_of_model, tokens_in
from langchain_rageval.testset import Testset

# Prices


TOKENS = {"input_tokens": 3_000_000, "output_tokens": 1_000_000, "input_token_details": {"cache_read": 2_000_000}}


@each(("price", "money"), [((2.0, 5.0), 11.0), ((2.0, 5.0, 0.5), 8.0), ([2, 5, 0], 7.0), ((0, 0), 0.0)])
def test_a_price_is_per_million_tokens_with_cached_ones_at_their_own(price, money):
    assert PriceList.of({"m": price}).cost(["other", "m"], TOKENS) == money
    assert PriceList.of(price).cost(["whatever"], TOKENS) == money


@each(
    ("price", "got"),
    [
        (0.5, "0.5"),
        ((1,), "(1,)"),
        ({"m": 1.0}, "m: 1.0"),
        ({"m": (1, -2)}, "m: (1, -2)"),
        ({"m": ("1", "2")}, "m: ('1', '2')"),
        ({"m": (1, float("nan"))}, "m: (1, nan)"),
    ],
)
def test_a_price_that_is_none_is_refused(price, got):
    assert str(error_of(ConfigError, PriceList.of, price)) == (
        "price must map names of models to (per million input tokens, per million output tokens), with a third number "
        "for cached input tokens if it differs, as in price={'gpt-4o-mini': (0.15, 0.6, 0.075)}; got " + got
    )


def test_a_model_is_known_by_the_name_in_its_reply_its_configuration_and_its_class():
    model = FakeListChatModel(responses=["x"]).with_retry()
    reply = AIMessage("x", response_metadata={"model_name": "m-2024"})
    assert names_of_model(model, reply) == ["m-2024", "FakeListChatModel"]
    assert names_of_model("m") == ["m"]


def test_the_money_of_a_sum_is_unknown_if_that_of_a_part_with_calls_is():
    paid, free, unknown = Usage(calls=1, money=0.5), Usage(), Usage(calls=1)
    assert (paid + paid).money == 1.0
    assert (paid + free).money == (free + paid).money == 0.5
    assert (paid + unknown).money is (unknown + paid).money is None


def test_unknown_money_is_not_written():
    assert "money" not in Usage(calls=1).model_dump()
    assert Usage.model_validate_json(Usage(calls=1, money=0.25).model_dump_json()).money == 0.25


def test_a_meter_adds_money_to_its_parents_until_a_price_is_missing():
    whole = UsageMeter(prices=PriceList.of((1, 2)))
    part = UsageMeter(whole)
    part.add(calls=1, money=0.5)
    assert (part.usage.money, whole.usage.money) == (0.5, 0.5)
    UsageMeter(whole).add(calls=1, unpriced=["m has no price"])
    assert (part.usage.money, whole.usage.money) == (0.5, None)
    assert UsageMeter().usage.money is None


@each(
    ("money", "text"),
    [
        *((None, "–"), (0.0, "0.0000"), (0.00001, "< 0.0001"), (0.00009, "< 0.0001"), (0.0001, "0.0001")),
        *((0.1234567, "0.1235"), (9.9876, "9.9876"), (10, "10.00"), (1234.5, "1,234.50")),
    ],
)
def test_money_is_shown_without_a_currency(money, text):
    assert format_money(money) == text


@each(
    ("tokens", "money"),
    [
        ({"input_tokens": 10, "output_tokens": None}, 20),
        ({"input_tokens": None, "output_tokens": 10}, 50),
        ({"input_tokens": 10, "input_token_details": None}, 20),
        ({"input_tokens": 10, "input_token_details": {"cache_read": None}}, 20),
        ({"input_tokens": 10, "input_token_details": {"cache_read": 4}}, 14),
        ({"input_tokens": 10, "input_token_details": {"cache_read": 40}}, 5),
    ],
)
def test_missing_counts_cost_nothing_and_no_more_than_all_input_was_cached(tokens, money):
    assert PriceList.of((2.0, 5.0, 0.5)).cost([], tokens) == pytest.approx(money / 1e6)


def test_a_named_price_comes_before_that_of_all_other_models():
    prices = PriceList.of({"": (1, 1), "m": (2, 2), "n": (3, 3)})
    paid = [prices.cost(names, {"input_tokens": 10**6}) for names in (["x", "n", "m"], ["m"], ["x"], [])]
    assert paid == [3, 2, 1, 1]
    assert PriceList.of(None) is None


def test_a_model_without_a_price_or_tokens_has_no_money():
    one, others = PriceList.of({"m": (1, 2)}), PriceList.of({"": (1, 1), "m": (2, 2)})
    assert [one.cost(["n"], TOKENS), one.cost(["m"], {})] == [None, None]
    assert [one.problem(names) for names in (["n"], [])] == [
        f"{name} has no price (there are prices of m)" for name in ("n", "a model")
    ]
    assert (one.problem(["m"]), others.problem(["x"])) == ("m reports no tokens", "x reports no tokens")


@each(("texts", "tokens"), [([], 0), (["abc"], 0), (["abcd"], 1), (["ab", "cd", "efg"], 1), (["abcd", "efgh"], 2)])
def test_a_token_is_estimated_as_four_characters_of_all_texts(texts, tokens):
    assert tokens_in(*texts) == tokens


def test_a_meter_takes_over_all_counts_of_another():
    prices = PriceList.of((1, 2))
    one, other = UsageMeter(prices=prices), UsageMeter(prices=prices)
    for meter, seconds in ((one, 1.5), (other, 0.25)):
        meter.add(calls=2, input_tokens=3, seconds=seconds, embedded=4, money=0.5, abandoned=1, unreported=7)
        meter.count("vote", 2)
    events = one.events
    one.add_all_of(other)
    expected = Usage(calls=4, input_tokens=6, seconds=1.75, embedded=8, money=1.0)
    assert (one.usage, one.abandoned, one.unreported) == (expected, 2, 14)
    assert (events, one.events) == ({"vote": 2}, {"vote": 4})
    other.add(unpriced=["no price"])
    one.add_all_of(other)
    assert (one.usage.money, [*one.unpriced]) == (None, ["no price"])


# Money


SAMPLES = [town(n) for n in range(4)]


PER_CALL = (600 * 10 + 400 * 1 + 100 * 20) / 1e6  # of `Metered`, with the prices (10.0, 20.0, 1.0)


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
    for metric in report.summary().values():
        assert metric.money == pytest.approx(PER_CALL * metric.calls)
    assert report.usage.money == pytest.approx(PER_CALL * report.usage.calls)
    assert report.usage.calls == 16
    assert "0.0672 money" in repr(report)
    assert "<th>money</th>" in report._repr_html_().replace(' scope="col"', "")


def test_without_prices_there_is_no_money_anywhere(tmp_path):
    report = run(None)
    assert report.usage.money is None
    report.to_jsonl(tmp_path / "r.jsonl")
    assert "money" not in repr(report) + report._repr_html_() + (tmp_path / "r.jsonl").read_text(encoding="utf-8")


def test_money_that_is_not_known_is_noted():
    for given, note in (
        (run({"gpt": (1.0, 2.0)}), "The money is unknown: m has no price (there are prices of gpt)."),
        (run({"m": (1.0, 2.0)}, Metered(reports=False)), "The money is unknown: m reports no tokens."),
    ):
        assert (given.usage.money, note in given.notes) == (None, True)


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


def generator(price, **options):
    options = {"distribution": {"simple": 1, "reasoning": 1}, "splitter": False, **options}
    return TestsetGenerator(Metered(), embeddings=Ring(), price=price, progress=False, **options)


def test_a_test_set_has_the_money_of_each_step(tmp_path):
    testset = generator({"m": (10.0, 20.0, 1.0)}, journal=tmp_path / "j.db").generate(documents(9), size=2)
    assert testset.usage.calls > 0
    assert testset.usage.money == pytest.approx(PER_CALL * testset.usage.calls)
    for usage in testset.usage_by_step.values():
        assert usage.money == pytest.approx(PER_CALL * usage.calls)
    money = f"{PER_CALL * testset.usage.calls:.4f} money"
    assert money in repr(testset)
    assert money in testset._repr_html_()
    testset.to_jsonl(tmp_path / "t.jsonl")
    assert Testset.load(tmp_path / "t.jsonl").usage.money == testset.usage.money
    resumed = generator({"m": (10.0, 20.0, 1.0)}, journal=tmp_path / "j.db").generate(documents(9), size=2)
    assert resumed.usage.money == pytest.approx(testset.usage.money)


def test_without_prices_a_test_set_and_its_plan_have_no_money(tmp_path):
    given = generator(None)
    testset, estimate = given.generate(documents(9), size=2), given.plan(documents(9), 2)
    testset.to_jsonl(tmp_path / "t.jsonl")
    assert (testset.usage.money, estimate.money, estimate.most_money) == (None, None, None)
    shown = [repr(testset), testset._repr_html_(), repr(estimate), estimate._repr_html_()]
    assert "money" not in " ".join([*shown, (tmp_path / "t.jsonl").read_text(encoding="utf-8")])


def test_a_price_of_another_model_is_noted_in_a_test_set_and_its_plan():
    given = generator({"gpt": (1, 2)})
    note = "The money is unknown: m has no price (there are prices of gpt)."
    assert note in given.generate(documents(6), size=1).notes
    estimate = given.plan(documents(6), 1)
    assert (estimate.money, estimate.most_money) == (None, None)
    assert estimate.notes.count(note) == 1


def test_the_plan_of_a_generation_has_the_money_of_its_tokens():
    estimate = generator({"m": (10.0, 20.0)}).plan(documents(9), 4)
    for step in [*estimate.values(), estimate.total]:
        assert step.money == pytest.approx((step.input_tokens * 10 + step.output_tokens * 20) / 1e6, abs=1e-4)
        assert step.money <= step.most_money
        assert step.most_money <= step.most_tokens * 20 / 1e6
    assert f"{estimate.money:.4f} money" in repr(estimate)
    assert estimate._repr_html_().count("money") == 1


def test_the_progress_shows_the_money():
    meter = UsageMeter(prices=PriceList.of((1.0, 2.0)))
    meter.add(calls=1, input_tokens=1_000_000, output_tokens=500_000, money=2.0)
    assert Progress(4, meter, "rows").status_line() == "0/4 rows, 1 call, 1,500,000 tokens, 2.0000 money, 0 failed"
