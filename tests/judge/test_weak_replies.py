"""Replies of weak models that a person can read: none is read wrongly, and few are refused."""

import json
from collections import Counter
from contextlib import suppress

import pytest
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


def dropped(name, when=lambda fields: True):
    """A change that drops a field of the items for which a condition holds."""

    def drop(value, _):
        is_item = isinstance(value, dict) and name in value and when(value)
        return {key: inner for key, inner in value.items() if key != name} if is_item else value

    return lambda output: json.dumps(changed(output, drop), ensure_ascii=False)


def parts(value, key):
    return [value, "and more"] if key == "reason" else value


def nested(value, key):
    return [[number] for number in value] if key == "evidence" and isinstance(value, list) else value


def as_text(value, key):
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def as_word(value, key):
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def capital(value, key):
    return value.capitalize() if key in ("verdict", "kind") and isinstance(value, str) else value


def other_reason(value, key):
    return "x" if key == "reason" else value


def written(change):
    return lambda output: json.dumps(changed(output, change), ensure_ascii=False)


def plain(output):
    return json.dumps(output, ensure_ascii=False, indent=1)


WEAK = {
    "no reason in an item": dropped("reason"),
    "no evidence of what is absent": dropped("evidence", lambda fields: fields.get("verdict") == "absent"),
    "a reason in parts": written(parts),
    "citations in lists": written(nested),
    "numbers as texts": written(as_text),
    "truth in words": written(as_word),
    "capital labels": written(capital),
    "a brace too many": lambda output: plain(output) + "}",
    "an escaped mark": lambda output: plain(output).replace("_", "\\_"),
    "a fence and prose": lambda output: f"Sure! Here it is:\n```json\n{plain(output)}\n```\nI hope this helps.",
    "comments": lambda output: plain(output).replace("{", "{ // as asked", 1),
    "single quotes": lambda output: repr(output),
    "a trailing comma": lambda output: plain(output)[:-1].rstrip() + ",\n}",
    "a list around it": lambda output: f"[{plain(output)}]",
    "a wrapper": lambda output: json.dumps({"result": output}, ensure_ascii=False),
}
CUT = {
    "cut in the middle": lambda output: plain(output)[: len(plain(output)) // 2],
    "two different answers": lambda output: plain(output) + plain(changed(output, other_reason)),
    "two braces too many": lambda output: plain(output) + "}}",
}


def without_reasons(value):
    return changed(
        value, lambda part, _: {k: v for k, v in part.items() if k != "reason"} if isinstance(part, dict) else part
    )


def examples():
    for language in ("en", "ru"):
        for step, answer in ANSWER_SCHEMAS.items():
            for example in PromptSet.default(language).get(step).examples:
                yield step, StrictJsonOutputParser(answer), example.output


def test_a_weak_reply_is_read_as_it_is_meant_or_refused_and_few_are_refused():
    read, refused = Counter(), Counter()
    for step, parser, output in examples():
        right = without_reasons(parser.parse(json.dumps(output)).model_dump())
        for name, spoil in WEAK.items():
            try:
                found = without_reasons(parser.parse(spoil(output)).model_dump())
            except OutputParserException:
                refused[name] += 1
            else:
                read[name] += 1
                assert found == right, (step, name)
    assert read.total() > 1000
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


@pytest.mark.parametrize("name", CUT)
def test_what_a_person_cannot_read_is_refused(name):
    for _, parser, output in examples():
        if name != "two different answers" or "reason" in json.dumps(output):
            with pytest.raises(OutputParserException):
                parser.parse(CUT[name](output))
