"""Replies of weak models that a person can read: none is read wrongly, and few are refused."""

import json
from collections import Counter
from contextlib import suppress

from helpers.stored import fixture_data
from langchain_core.exceptions import OutputParserException

from langchain_rageval import PromptSet
from langchain_rageval.judge.parser import StrictJsonOutputParser
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS


def changed(value, change, key=""):
    """A nested value with each part changed by a function of the part and its name."""
    if isinstance(value, dict):
        value = {name: changed(inner, change, name) for name, inner in value.items()}
    elif isinstance(value, list):
        value = [changed(inner, change, key) for inner in value]
    return change(value, key)


def without(name, when=lambda fields: True):
    """A change that drops a field of the items for which a condition holds."""

    def drop(value, _):
        is_item = isinstance(value, dict) and name in value and when(value)
        return {key: inner for key, inner in value.items() if key != name} if is_item else value

    return drop


WEAK = {
    "no reason in an item": without("reason"),
    "no evidence of what is absent": without("evidence", lambda fields: fields.get("verdict") == "absent"),
    "a reason in parts": lambda value, key: [value, "and more"] if key == "reason" else value,
    "citations in lists": lambda value, key: (
        [[one] for one in value] if key == "evidence" and type(value) is list else value
    ),
    "numbers as texts": lambda value, _: str(value) if type(value) is int else value,
    "truth in words": lambda value, _: {True: "yes", False: "no"}[value] if isinstance(value, bool) else value,
    "capital labels": lambda value, key: (
        value.capitalize() if key in ("verdict", "kind") and type(value) is str else value
    ),
}  # replies that are spoilt in their form: tests/fixtures/replies.yaml


def without_reasons(value):
    return changed(value, without("reason"))


def examples():
    for language in ("en", "ru"):
        for step, answer in ANSWER_SCHEMAS.items():
            for example in PromptSet.default(language).get(step).examples:
                yield step, StrictJsonOutputParser(answer), example.output


def test_a_weak_reply_is_read_as_it_is_meant_or_refused_and_few_are_refused():
    read, refused = Counter(), Counter()
    for step, parser, output in examples():
        right = without_reasons(parser.parse(json.dumps(output)).model_dump())
        for name, change in WEAK.items():
            try:
                found = without_reasons(parser.parse(json.dumps(changed(output, change))).model_dump())
            except OutputParserException:
                refused[name] += 1
            else:
                read[name] += 1
                assert found == right, (step, name)
    assert read.total() > 500
    assert refused.total() <= 0.25 * (read.total() + refused.total()), refused


def test_broken_replies_are_read_as_a_person_reads_them_or_refused():
    replies = fixture_data("weak_replies.yaml")
    read = []
    for one in replies:
        with suppress(OutputParserException):
            answer = StrictJsonOutputParser(ANSWER_SCHEMAS[one["step"]]).parse(one["reply"])
            read.append((one["reply"], without_reasons(answer.model_dump()), one["meant"]))
    assert [(reply, found) for reply, found, meant in read if found != meant] == []
    assert len(replies) >= 60
    assert len(read) >= 0.75 * len(replies)
