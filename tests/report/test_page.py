"""The HTML page as a file, and the tree of an answer; what a browser makes of it: `test_page_in_chromium.py`."""

import base64
import gzip
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from typing import get_args

import pytest
import yaml
from helpers.each import each
from helpers.reports import report, sample, score
from helpers.stored import assert_stored, page_text
from helpers.texts import corpus
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Report, Row, Score
from langchain_rageval.data.instrument import Instrument, Provenance
from langchain_rageval.report import page as page_module
from langchain_rageval.report.files import Decision, Outcome
from langchain_rageval.report.page import _ends
from langchain_rageval.report.page_blocks import Chunks, build_answer_tree, sample_view

WORDS = yaml.safe_load((page_module._FILES / "words.yaml").read_text(encoding="utf-8"))


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def written(told, tmp_path, **options):
    path = tmp_path / "report.html"
    told.to_html(path, **options)
    return path.read_text(encoding="utf-8")


def unpacked(html, block):
    packed = re.search(f'<script type="text/plain" id="{block}">(.*?)</script>', html).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_nothing_in_it_comes_from_anywhere_else(tmp_path):
    html = written(report([1.0, 0.5]), tmp_path)
    for tag, attributes in Elements(html).found:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        assert "src" not in attributes, tag
        assert "style" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert attributes.get("href", "#").startswith("#"), attributes


def test_the_policy_allows_its_own_script_and_style_alone(tmp_path):
    html = written(report([1.0]), tmp_path)
    policy = next(a["content"] for tag, a in Elements(html).found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    script = html[html.rindex("<script>") + len("<script>") : html.rindex("</script>")]
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    for text, directive in ((script, "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy


def test_samples_and_chunks_beyond_a_block_are_found_where_the_script_looks(tmp_path):
    texts = [[f"{name} {n}." for name in ("Chunk", "More", "Last")] for n in range(250)]
    rows = [Row(index=n, sample=sample(n, contexts=own), scores={"f": score(1.0, "f")}) for n, own in enumerate(texts)]
    html = written(Report(rows), tmp_path)
    each = unpacked(html, "index")["part"]
    for place in (0, 99, 100, 199, 249):
        row = unpacked(html, f"part-{place // each}")[place % each]
        assert row["sample"]["id"] == f"sample-{place}"
        for chunk, text in zip(row["sample"]["contexts"], texts[place], strict=True):
            assert unpacked(html, f"chunks-{chunk // each}")[chunk % each] == [text]
    blocks = [len(unpacked(html, f"chunks-{number}")) for number in range(8)]
    assert blocks == [100] * 7 + [50]


@pytest.mark.gate
def test_a_thousand_real_samples_are_under_five_megabytes(tmp_path):
    text = "".join(document.page_content for document in corpus("ru_wiki"))
    chunks = [text[start : start + 720] for start in range(0, len(text) - 720, 90)]
    rows = []
    for n in range(1000):
        contexts = [chunks[(5 * n + k) % len(chunks)] for k in range(5)]
        scores = {f"metric_{m}": score(1.0, f"metric_{m}") for m in range(6)}
        rows.append(Row(index=n, sample=sample(n, contexts=contexts), scores=scores))
    told = Report(rows)
    path = tmp_path / "big.html"
    told.to_html(path)
    assert path.stat().st_size < 5_000_000


def test_it_speaks_the_language_of_most_questions_or_the_one_that_is_asked_for(tmp_path):
    russian = Report([Row(index=0, sample=sample(0, question="Где находится музей?"), scores={"f": score(1.0, "f")})])
    assert '<html lang="ru">' in written(russian, tmp_path)
    assert '<html lang="en">' in written(russian, tmp_path, language="en")
    assert '<html lang="en">' in written(report([1.0]), tmp_path)
    assert "Сводка" in written(report([1.0]), tmp_path, language="ru")
    with pytest.raises(ConfigError, match="language must be one of auto, en, ru, got 'fr'"):
        report([1.0]).to_html(tmp_path / "x.html", language="fr")


def test_both_languages_have_the_same_words_and_remedies_of_causes_and_the_script_uses_only_them():
    assert WORDS["en"].keys() == WORDS["ru"].keys()
    used = set(re.findall(r"\bwords\.(\w+)", page_module.read_template("report.js")))
    assert used | {"too_old"} == WORDS["en"]["script"].keys() == WORDS["ru"]["script"].keys()
    assert "too_old" not in used
    assert WORDS["en"]["causes"].keys() == WORDS["ru"]["causes"].keys() == page_module.REMEDIES.keys()
    assert WORDS["ru"]["remedies"].keys() == {cause for cause, remedy in page_module.REMEDIES.items() if remedy}


def test_notes_an_early_end_and_what_was_left_out_are_said(tmp_path):
    html = written(report([1.0], notes=["Judged <offline>."], complete=False, left_out=[(1, "faithfulness")]), tmp_path)
    assert "Judged &lt;offline&gt;." in html
    assert WORDS["en"]["incomplete"] in html
    assert "Left out by the budget: 1 scores." in html


def test_an_empty_report_and_one_left_on_disk_are_written_too(tmp_path):
    assert '<html lang="en">' in written(Report([]), tmp_path)
    report([1.0, 0.0]).to_jsonl(tmp_path / "report.jsonl")
    lazy = Report.load(tmp_path / "report.jsonl", lazy=True)
    assert unpacked(written(lazy, tmp_path), "part-0") == unpacked(written(report([1.0, 0.0]), tmp_path), "part-0")


def test_a_text_too_long_to_show_is_cut_and_says_so(tmp_path):
    html = written(Report([Row(index=0, sample=sample(0, answer="ы" * 1_000_000), scores={})]), tmp_path)
    shown = unpacked(html, "part-0")[0]["sample"]["answer"]
    assert shown.endswith("ы… [1,000,000]")
    assert len(shown) < 201_000


def test_without_jinja2_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match="pip install jinja2 markdown-it-py"):
        report([1.0]).to_html(tmp_path / "x.html")


NOTE = "ChatOpenAI(model='qwen3', base_url='http://10.0.0.7:8000/v1', temperature=0.0) was called in json_schema mode."


def judged(*models, **others):
    """Return a report of three samples with the judges that these models are."""
    instrument = Instrument.of({"steps": [{"judge": {"model": model}} for model in models]}, {"options": {}})
    provenance = Provenance().with_instrument("faithfulness", instrument)
    scores = [score(value, instrument=instrument.digests) for value in (1.0, 0.5, 0.0)]
    rows = [Row(index=n, sample=sample(n), scores={"faithfulness": one}) for n, one in enumerate(scores)]
    return Report(rows, provenance=provenance, **others)


def facts_of(html):
    found = re.findall(r"<dt>(.*?)</dt><dd[^>]*>(?:<time[^>]*>)?(.*?)<", html)
    return dict(found)


def test_it_names_run_date_judge_and_version_in_words(tmp_path):
    model = {"class": "langchain_openai.ChatOpenAI", "model": "qwen3-8b", "base_url": "http://10.0.0.7:8000/v1"}
    told = judged(model, name="monday", finished="2026-11-22T14:05:09+00:00", version="0.9.1", notes=[NOTE])
    html = written(told, tmp_path)
    facts = {"run": "monday", "finished": "22 November 2026, 14:05 UTC", "judge": "qwen3-8b"}
    assert facts_of(html) == facts | {"samples": "3", "calls": "0", "version": "langchain-rageval 0.9.1"}
    assert '<time datetime="2026-11-22T14:05:09+00:00">' in html
    assert "qwen3 was called in json_schema mode." in html
    assert "10.0.0.7" not in html
    assert facts_of(written(told, tmp_path, language="ru"))["завершён"] == "22 ноября 2026, 14:05 UTC"


@each(
    ("model", "name"),
    [
        ({"class": "a.OfflineJudge"}, "offline baseline (word overlap)"),
        ({"class": "a.ChatLlamaCpp", "model_path": "./models/big.gguf"}, "big.gguf"),
        ({"class": "a.ChatOpenAI", "model_name": "Qwen/Qwen3-8B"}, "Qwen/Qwen3-8B"),
        ({"bound": {"class": "a.ChatOpenAI", "model": "m"}, "kwargs": {"seed": 1}}, "m"),
        ({"class": "a.Own"}, "Own"),
    ],
)
def test_a_judge_is_named_by_its_model(tmp_path, model, name):
    assert facts_of(written(judged(model), tmp_path))["judge"] == name


def test_the_first_instrument_of_a_metric_is_described_and_of_others_the_differences():
    provenance, rows = Provenance(), []
    known = [({"judge": "a"}, None), ({"judge": "b"}, None), (None, None)]
    for place, (found_by, counted_by) in enumerate(known):
        instrument = Instrument.of(found_by, counted_by, "why")
        provenance = provenance.with_instrument("faithfulness", instrument)
        scores = {"faithfulness": score(1.0, instrument=instrument.digests)}
        rows.append(Row(index=place, sample=sample(place), scores=scores))
    shown = page_module.Page(Report(rows, provenance=provenance), "en")
    assert shown.instruments == {"faithfulness": [str(Instrument.of(*known[0], "why")), "judge: 'a' != 'b'"]}
    assert page_module.Page(report([1.0]), "en").instruments == {}


def test_an_unknown_date_and_judge_are_said_to_be_unknown(tmp_path):
    facts = facts_of(written(report([1.0]), tmp_path))
    assert (facts["finished"], facts["judge"]) == ("not recorded", "not recorded")
    assert "run" not in facts


@each(
    ("told", "headline"),
    [
        (report([0.5, 1.0]), "Problems in 2 of 2 samples"),
        (Report([]), "No samples were scored"),
        (Report([Row(index=0, sample=sample(0), scores={"f": score(1.0, "f", findings=[])})]), "Samples scored: 1"),
    ],
)
def test_it_opens_with_the_verdict(tmp_path, told, headline):
    html = written(told, tmp_path)
    assert re.search("<h1[^>]*>(.*?)</h1>", html)[1] == headline
    assert re.search("<title>(.*?)</title>", html)[1] == headline


def test_a_sample_holds_the_tree_of_its_answer_and_the_sources_of_its_chunks(tmp_path):
    sources = {"context_sources": ["cities.pdf", None, 3]}
    one = sample(0, answer="**Munich** lies on the Isar.", context_ids=["c-1", "c-2", "c-3"], metadata=sources)
    told = Report([Row(index=0, sample=one, scores={"faithfulness": score(0.5)})])
    view = unpacked(written(told, tmp_path), "part-0")[0]
    assert view["sources"] == ["cities.pdf", None, "3"]
    assert (view["sample"]["context_ids"], view["sample"]["metadata"]) == (["c-1", "c-2", "c-3"], {})
    assert view["statements"] == "faithfulness"
    assert view["answer"] == [["p", ["mark", [0], ["strong", "Munich"], " lies on the Isar."]]]


@pytest.mark.parametrize(("language", "words"), [("en", "passed"), ("ru", "порог пройден")])
def test_decisions_stand_at_the_head_and_nothing_is_said_about_a_budget(tmp_path, language, words):
    decisions = {"faithfulness": Decision("passed", 0.81, 0.93, 120, 0.05, "at least 0.8")}
    html = written(report([1.0], decisions=decisions, left_out=[(1, "faithfulness")]), tmp_path, language=language)
    assert f'<span class="verdict passed"><bdi>faithfulness</bdi> {words} [0.810, 0.930]</span>' in html
    assert WORDS[language]["left_out"].format(count=1) not in html
    assert WORDS[language]["outcomes"].keys() == {*get_args(Outcome)}


@each(("changes", "listed"), [(9, 9), (10, 10), (11, 10), (30, 10)])
def test_the_greatest_changes_are_listed_five_in_each_direction(changes, listed):
    found = _ends([(n, f"q-{n}", n / 100) for n in range(changes)], False)
    assert len(found) == listed
    assert [change[0] for change in (found[0], found[-1])] == [0, changes - 1]


def test_the_page_repeats_no_chunk_in_findings_and_all_other_texts():
    finding = {"kind": "context", "number": 1, "text": "A chunk.", "verdict": "v", "reason": ""}
    # the second is no chunk, and the third has the text of the next chunk
    findings = [finding, {**finding, "kind": "statement"}, {**finding, "text": "Another."}]
    own = sample(0).model_copy(update={"contexts": ["A chunk.", "Another."]})
    one = Row(index=0, sample=own, scores={"m": Score(metric="m", aspect="answer", value=1.0, findings=findings)})
    shown = sample_view(one, Chunks(), str)["scores"]["m"]["findings"]
    assert [finding["text"] for finding in shown] == ["", "A chunk.", "Another."]
    other = one.model_copy(update={"sample": sample(0)})  # the metric is of what the retrievers returned
    assert sample_view(other, Chunks(), str)["scores"]["m"]["findings"][0]["text"] == "A chunk."


def test_the_page_of_a_comparison_is_as_stored(tmp_path):
    values = [1.0, 0.5, 0.0, 0.25, 0.75, 0.4, 0.9]
    options = {"notes": ["Something to know."], "name": "late", "finished": "2026-11-23T10:00:00+00:00"}
    told, before = report(values, **options), report([0.9, *values[:-1]])
    fields = {"answer": ANSWER, "context_ids": ["a", "b", "c"], "metadata": {"source": "x"}}
    cited = told.rows[1].sample.model_copy(update=fields)
    told = Report([row.model_copy(update={"sample": cited}) if row.index == 1 else row for row in told.rows], **options)
    for language in ("en", "ru"):
        html = written(told, tmp_path, baseline=before, language=language)
        assert_stored(f"page_{language}.txt", page_text(html))


ANSWER = """Munich *lies* on the Isar. It lies in Saxony.

| it | is |
|----|----|
| old | ~~new~~ |

1. one
2. `two` <b>bold</b> [link](https://example.org/a)
"""


# The tree of an answer: Markdown that a browser can show safely, with the sentences of its statements marked


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
    tree = json.dumps(build_answer_tree(answer, [statement]), ensure_ascii=False)
    marks = re.findall(r'\["mark", \[0\], (.*?)\]\]', tree)
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
    link, image = [["link", "see"], ["small", " (https://a.b/c)"]], [["em", "map"], ["small", " (http://d/e.png)"]]
    paragraph = ["p", "<img src=x onerror=a()> ", *link, " ", *image, " [no](javascript:a())"]
    assert build_answer_tree(answer, []) == [paragraph]


DEEP = "*" * 900 + "a" + "*" * 900


@each("answer", ["Plain text.", "two\nlines", "a < b & c > d", "> " * 200 + "deep", DEEP, "x" * 30_000])
def test_plain_text_and_what_the_parser_would_drop_need_no_tree(answer):
    assert build_answer_tree(answer, []) is None


MARKUP = ["# ", "**", "*", "`", "```\n", "- ", "1. ", "> ", "|", "\n", "[a](b)", "<b>", "\\", "word "]


@given(st.lists(st.sampled_from(MARKUP)))
def test_any_answer_gives_known_tags_and_keeps_its_words(parts):
    answer = "".join(parts)
    tree = build_answer_tree(answer, ["word"])
    if tree is not None:
        assert tags_of(["p", *tree]) <= TAGS
        assert "".join(map(text_of, tree)).count("word") >= 0.8 * answer.count("word")
