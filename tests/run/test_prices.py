"""Prices of models."""

import pytest
from helpers.each import each
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage

from langchain_rageval import ConfigError
from langchain_rageval.data.schema import Usage
from langchain_rageval.run.usage import PriceList, UsageMeter, format_money, names_of_model

TOKENS = {"input_tokens": 3_000_000, "output_tokens": 1_000_000, "input_token_details": {"cache_read": 2_000_000}}


@each(("price", "money"), [((2.0, 5.0), 11.0), ((2.0, 5.0, 0.5), 8.0), ([2, 5, 0], 7.0), ((0, 0), 0.0)])
def test_a_price_is_per_million_tokens_with_cached_ones_at_their_own(price, money):
    assert PriceList.of({"m": price}).cost(["other", "m"], TOKENS) == money
    assert PriceList.of(price).cost(["whatever"], TOKENS) == money


def test_a_model_without_a_price_or_tokens_has_no_money():
    prices = PriceList.of({"m": (1, 2)})
    assert prices.cost(["n"], TOKENS) is None
    assert prices.problem(["n"]) == "n has no price (there are prices of m)"
    assert prices.cost(["m"], {}) is None
    assert prices.problem(["m"]) == "m reports no tokens"


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
    [(None, "–"), (0.0, "0.0000"), (0.00001, "< 0.0001"), (0.1234567, "0.1235"), (1234.5, "1,234.50")],
)
def test_money_is_shown_without_a_currency(money, text):
    assert format_money(money) == text
