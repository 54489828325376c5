"""Prices of models."""

import pytest
from helpers.each import each
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage

from langchain_rageval import ConfigError
from langchain_rageval.data.schema import Usage
from langchain_rageval.run.usage import PriceList, UsageMeter, format_money, names_of_model, tokens_in

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
    with pytest.raises(ConfigError) as caught:
        PriceList.of(price)
    assert str(caught.value) == (
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
