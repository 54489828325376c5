"""The tree of an answer: Markdown that a browser can show safely, with the sentences of its statements marked."""

import json
import re

from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.report.page_blocks import build_answer_tree

TAGS = {"p", "heading", "ul", "ol", "li", "blockquote", "pre", "hr", "table", "thead", "tbody", "tr", "th", "td"}
TAGS |= {"strong", "em", "s", "code", "link", "small", "mark"}


def tags_of(node):
    if not isinstance(node, list):
        return set()
    children = node[2:] if node[0] == "mark" else node[1:]
    return {node[0].split(" ")[0]}.union(*map(tags_of, children))


def text_of(node):
    if isinstance(node, str):
        return node
    return "".join(map(text_of, node[2:] if node[0] == "mark" else node[1:]))


def test_each_statement_marks_the_sentence_that_holds_it():
    answer = "Munich is a city. It lies on the Isar. Nobody knows why."
    statements = ["Munich lies on the Isar.", "Munich is a city.", "It is on the Isar.", "Dresden is in Saxony."]
    assert build_answer_tree(answer, statements) == [
        ["p", ["mark", [1], "Munich is a city."], " ", ["mark", [0, 2], "It lies on the Isar."], " Nobody knows why."]
    ]


@each(
    ("answer", "statement", "marked"),
    [
        ("Музей открыт в 1880 году. Вход бесплатный.", "Вход в музей бесплатен.", "Вход бесплатный."),
        ("慕尼黑位于伊萨尔河畔。它是巴伐利亚州首府。", "慕尼黑是巴伐利亚州首府。", "它是巴伐利亚州首府。"),
        ("- built in 1158\n- on the **Isar**", "It is on the Isar.", "on the Isar"),
        ("| Year | Event |\n|--|--|\n| 1158 | founded |", "It was founded.", "founded"),
    ],
)
def test_statements_are_found_in_other_languages_lists_and_tables(answer, statement, marked):
    marks = re.findall(
        r'\["mark", \[0\], (.*?)\]\]', json.dumps(build_answer_tree(answer, [statement]), ensure_ascii=False)
    )
    assert len(marks) == 1
    assert marked.split()[-1].strip("*") in marks[0]


def test_markdown_becomes_elements():
    answer = "# Rivers\n3. the *Isar*\n4. ~~the~~ `Elbe`\n\n> quoted\nlines\n\n```py\nx = 1\n```\n---"
    assert build_answer_tree(answer, []) == [
        ["heading", "Rivers"],
        ["ol 3", ["li", "the ", ["em", "Isar"]], ["li", ["s", "the"], " ", ["code", "Elbe"]]],
        ["blockquote", ["p", "quoted\nlines"]],
        ["pre", "x = 1\n"],
        ["hr"],
    ]


def test_html_is_text_and_addresses_stand_behind_their_links():
    answer = "<img src=x onerror=a()> [see](https://a.b/c) ![map](http://d/e.png) [no](javascript:a())"
    assert build_answer_tree(answer, []) == [
        [
            "p",
            "<img src=x onerror=a()> ",
            ["link", "see"],
            ["small", " (https://a.b/c)"],
            " ",
            ["em", "map"],
            ["small", " (http://d/e.png)"],
            " [no](javascript:a())",
        ]
    ]


DEEP = "*" * 900 + "a" + "*" * 900


@each("answer", ["Plain text.", "two\nlines", "a < b & c > d", "> " * 200 + "deep", DEEP, "x" * 30_000])
def test_plain_text_and_what_the_parser_would_drop_need_no_tree(answer):
    assert build_answer_tree(answer, []) is None


@given(
    st.lists(
        st.sampled_from(["# ", "**", "*", "`", "```\n", "- ", "1. ", "> ", "|", "\n", "[a](b)", "<b>", "\\", "word "])
    )
)
def test_any_answer_gives_known_tags_and_keeps_its_words(parts):
    answer = "".join(parts)
    tree = build_answer_tree(answer, ["word"])
    if tree is not None:
        assert tags_of(["p", *tree]) <= TAGS
        assert "".join(map(text_of, tree)).count("word") >= 0.8 * answer.count("word")
