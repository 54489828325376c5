"""What a run, a comparison and a merge request say, word for word."""

import re
from textwrap import dedent

from helpers.reports import failed, report_of, scored, unscored

from langchain_rageval.report.markdown import markdown_of


def noise(value):
    return scored(value, "noise", direction="lower", reason=f"{value} of the statements")


LATE = report_of(
    *([scored(value, reason=f"{value} is supported"), noise(1 - value)] for value in (0.5, 0.75, 1.0, 0.25, 0.5, 1.0)),
    [failed(), noise(0.5)],
    [unscored(), noise(0.0)],
    notes=["Something to know."],
)
EARLY = report_of(*([scored(value), noise(1 - value)] for value in (0.75, 1.0, 1.0, 0.75, 1.0, 1.0, 1.0, 1.0)))


def lines(text):
    return dedent(text).strip("\n").splitlines()


def test_the_text_of_a_report():
    assert str(LATE).splitlines() == lines("""
        Report of 8 samples
        faithfulness 0.667 [0.383, 0.866] (6 scored, 1 unscored, 1 failed; 0 calls)
        noise 0.312 [0.141, 0.557] (8 scored, 0 unscored, 0 failed; 0 calls)
        Failed: 1 of faithfulness: APIConnectionError in verify_statements, first in sample 'q-6': Connection error.
        Unscored: 1 of faithfulness: the answer states no facts, first in sample 'q-7'
        Note: Something to know.
    """)


def test_the_text_of_a_comparison():
    assert str(LATE.compare(EARLY)).splitlines() == lines(
        """
        Candidate minus baseline, 95% intervals, p Holm-adjusted
        faithfulness inconclusive: -0.250 [-0.478, +0.103], p = 0.174 (6 pairs, 0 better, 4 worse); {0.847}
        noise inconclusive: +0.250 [-0.035, +0.435], p = 0.174 (8 pairs, 0 better, 5 worse); {0.703}
    """.replace("{", "a loss up to ").replace("}", " is possible")
    )


def test_the_tables_of_a_notebook():
    def cells(shown):
        return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in shown.split("</tr>")[:-1]]

    assert cells(LATE._repr_html_()) == [
        ["metric", "mean", "95% interval", "scored", "unscored", "failed", "abstained", "calls", "tokens"],
        ["faithfulness", "0.667", "[0.383, 0.866]", "6", "1", "1", "1", "0", "–"],
        ["noise", "0.312", "[0.141, 0.557]", "8", "0", "0", "–", "0", "–"],
    ]
    assert cells(LATE.compare(EARLY)._repr_html_()) == [
        ["metric", "verdict", "baseline", "candidate", "difference", "95% interval", "p", "pairs", "+", "−"],
        ["faithfulness", "inconclusive", "0.917", "0.667", "-0.250", "[-0.478, +0.103]", "0.174", "6", "0", "4"],
        ["noise ↓", "inconclusive", "0.062", "0.312", "+0.250", "[-0.035, +0.435]", "0.174", "8", "0", "5"],
    ]


def test_the_markdown_of_a_run():
    shown = markdown_of(
        LATE, LATE.gates({"faithfulness": 0.5, "noise": 0.2}, 0.2, max_unscored=0.2), LATE.compare(EARLY)
    )
    head, worst = shown.split("### Worst samples\n\n")
    assert head.rstrip("\n").splitlines() == lines("""
        ## ❌ RAG evaluation: failed

        - noise is 0.312 \\[0.141, 0.557\\], at most 0.2 is required \\[below-threshold\\]

        | metric | mean | 95% interval | required | baseline | difference | scored | unscored | failed |
        |---|---|---|---|---|---|---|---|---|
        | faithfulness | 0.667 | [0.383, 0.866] | ✅ mean at least 0.5 | 0.917 | -0.250 [-0.478, +0.103] | 6 | 1 | 1 |
        | noise ↓ | 0.312 | [0.141, 0.557] | ❌ mean at most 0.2 | 0.062 | +0.250 [-0.035, +0.435] | 8 | 0 | 0 |
    """)
    samples, notes = worst.split("### Notes\n\n")
    assert re.findall(r"\((q-\d)\): faithfulness (\S+), noise ([\d.]+)<", samples) == [
        ("q-3", "0.25", "0.75"),
        ("q-0", "0.50", "0.50"),
        ("q-4", "0.50", "0.50"),
        ("q-6", "–", "0.50"),
        ("q-1", "0.75", "0.25"),
    ]
    assert samples.splitlines()[:7] == lines("""
        <details><summary>When was Munich founded? (q-3): faithfulness 0.25, noise 0.75</summary>

        - answer: In 1158.
        - faithfulness: 0\\.25 is supported
        - noise: 0\\.75 of the statements

        </details>
    """)
    assert notes.splitlines() == lines("""
        - Failed: 1 of faithfulness: APIConnectionError in verify\\_statements, first in sample 'q-6': Connection error.
        - Unscored: 1 of faithfulness: the answer states no facts, first in sample 'q-7'
        - Something to know.
    """)
