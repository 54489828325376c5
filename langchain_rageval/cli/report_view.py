"""Show a report on the terminal: summary, diagnosis, the worst samples, and gates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from langchain_rageval._internal.page import pluralize, printable
from langchain_rageval.cli.terminal import fields_of, print_indented, shorten, show_notes, table_of, write_message
from langchain_rageval.data.schema import Failure
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.gates import Gate
from langchain_rageval.report.labelling import describe_question
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import missing_scores

_MOST_WORST = 3  # samples listed per metric
_WORST_IN_ALL = 6  # about so many samples are listed, at least one per metric


def report_object(report: Report, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """Return the JSON object that `rageval evaluate` and `rageval report` print.

    Its keys are `samples`, `complete`, `metrics`, `aspects`, `diagnosis`, `left_out`, `decisions`, `audit`, `notes` and
    `gates`.
    """
    summary = report.summary()
    return {
        "samples": len(report),
        "complete": report.complete,
        "metrics": {
            name: fields_of(metric, "metric", "usage") | metric.usage.model_dump() | {"money": metric.money}
            for name, metric in summary.items()
        },
        "aspects": {name: aspect.mean for name, aspect in summary.aspects.items()},
        "diagnosis": dict(report.diagnose().counts),
        "left_out": [{"index": index, "metric": metric} for index, metric in report.left_out],
        "decisions": {name: decision.to_dict() for name, decision in report.decisions.items()},
        "audit": {name: audit.to_dict() for name, audit in report.audit.items()},
        "notes": report.notes,
        "gates": [gate.to_dict() for gate in gates],
    }


def show_report(
    report: Report,
    out: Console,
    *,
    written: str | None = None,
    gates: Sequence[Gate] = (),
    notes_on_gates: Sequence[str] = (),
) -> None:
    """Print the summary, the diagnosis, the worst samples, missing scores, the notes, and the path of the report.

    Each gate follows with its verdict and its reason, and then the notes of a comparison.
    """
    summary = report.summary()
    try:
        finished = f"{datetime.fromisoformat(report.finished):%Y-%m-%d %H:%M} UTC"
    except ValueError:  # unknown
        finished = ""
    title = " · ".join(filter(None, (pluralize(len(report), "sample"), escape(printable(report.name)), finished)))
    out.print(table_of(summary.headings, summary.cells(), title=title))
    if audit := report.audit:
        out.print()
        out.print(table_of(audit.headings, audit.cells(), title=audit.title))
    show_diagnosis(report, out)
    _show_worst(report, out)
    if missing := missing_scores(report.rows):
        out.print()
    for line in missing:
        print_indented(out, "", escape(printable(line)), indent=2)
    show_notes(report.notes, out, "Report", written)
    for gate in gates:
        colour = {"passed": "green", "failed": "red", "undecided": "yellow"}[gate.verdict]
        requirement = f"{gate.metric} {gate.requirement}".strip()
        out.print(f"[{colour}]{gate.verdict}[/{colour}] {escape(printable(requirement))}", soft_wrap=True)
        if gate.reason:
            print_indented(out, "", escape(printable(gate.reason)), indent=2)
    show_notes(notes_on_gates, out)


def show_diagnosis(report: Report, out: Console) -> None:
    """Print each cause of error with its number of samples and its remedy; print nothing if no cause is known."""
    diagnosis = report.diagnose()
    if diagnosis.counts.keys() <= {"cannot tell"}:
        return
    out.print("\n[bold]Diagnosis: number of samples, what is wrong, what to check[/bold]")
    digits = max(len(str(count)) for count in diagnosis.counts.values())
    for cause, count in diagnosis.counts.items():
        remedy = diagnosis.remedies.get(cause, "")
        line = f"[bold]{cause}[/bold]" + (f" · {escape(remedy)}" if remedy else "")
        print_indented(out, f"  {count:>{digits}}  ", line)


def _show_worst(report: Report, out: Console) -> None:
    """Print the worst samples of each metric that has imperfect scores: value, question, id and reason."""
    worst = {}
    for metric, whole in report.summary().items():
        best = 1.0 if whole.direction == "higher" else 0.0
        rows = [row for row in report.worst(metric, _MOST_WORST) if row.scores[metric].value != best]
        if rows:
            worst[metric] = rows
    for metric, rows in worst.items():
        out.print(f"\n[bold]Worst by {escape(shorten(metric))}[/bold]")
        for row in rows[: max(1, _WORST_IN_ALL // len(worst))]:
            score = row.scores[metric]
            prefix = "  –      " if score.value is None else f"  {score.value:<6.3f} "
            question = f"{escape(shorten(describe_question(row)))} [dim]({escape(shorten(row.sample.id))})[/dim]"
            print_indented(out, prefix, question)
            if score.comment:
                print_indented(
                    out, " " * Text.from_markup(prefix, emoji=False).cell_len, escape(shorten(score.comment))
                )


_HINTS = {
    r".*CERTIFICATE_VERIFY_FAILED": "name the file with the root certificate in GIGACHAT_CA_BUNDLE_FILE, for other "
    "models in SSL_CERT_FILE",
    r".*ALERT_(\w*CERTIFICATE|UNKNOWN_CA|HANDSHAKE)": "the server asks for a client certificate: in Python, "
    "ssl_context= of GigaChat or http_client= of ChatOpenAI; without GIGACHAT_CREDENTIALS also GIGACHAT_CERT_FILE and "
    "GIGACHAT_KEY_FILE, with the root certificate in SSL_CERT_FILE",
    r"Connect.*/oauth\)": "the token comes from this address: is GIGACHAT_AUTH_URL right?",
    r"(Auth|BadRequest|Response).*\bscope\b": "does GIGACHAT_SCOPE belong to the key: GIGACHAT_API_PERS, "
    "GIGACHAT_API_B2B or GIGACHAT_API_CORP?",
    r"FileNotFound": "does the file exist that a variable such as SSL_CERT_FILE names?",
    r"\w*Connect": "is the server running, and is --base-url right?",
    r"\w*Timeout": "the server may be overloaded: increase --timeout or reduce --max-concurrency",
    r"\w*Auth": "is the key in the environment right?",
    r"\w*(Permission|Forbidden)": "does this key have access to the model?",
    r"\w*NotFound": "are the model's name and --base-url right? It mostly ends with /v1",
}
"""Hints by a pattern of the exception's name and message; the first that matches is shown."""


def check_not_all_failed(report: Report) -> None:
    """Check that at least one score did not fail.

    If models were called, at least one score with a model call must have succeeded.

    Raises:
        ConfigError: if all these scores failed, for example because the server is unreachable or the key is wrong.
    """
    scores = [score for row in report.rows for score in row.scores.values()]
    failures = [score.failure for score in scores if score.failure]
    called = [score for score in scores if score.usage.calls]
    if failures and all(score.failure for score in called or scores):
        raise ConfigError(
            f"every score failed (samples: {len(report)}); first failure: {failures[0].text}", failures[0]
        )


def warn_about_failures(report: Report) -> None:
    """Write the number of failed scores and the first failure to stderr; nothing if no score failed."""
    failed = report.failures()
    if failures := [score.failure for _, score in failed if score.failure]:
        first = f"{failures[0].text}{hint_for(failures[0])}"
        incomplete = len({row.index for row, score in failed if score.failure and score.failure.step == "sample"})
        count = f"{len(failures)} ({incomplete} samples lack a field)" if incomplete else str(len(failures))
        write_message(f"failed scores: {count}, excluded from the means; first failure: {first}")
    if of_audit := [score.failure for row in report.rows for score in row.audit.values() if score.failure]:
        first = f"{of_audit[0].text}{hint_for(of_audit[0])}"
        write_message(f"failed scores of the audit: {len(of_audit)}; first failure: {first}")


def hint_for(failure: Failure | None) -> str:
    """Return a hint, in brackets, for the failure of a model; "" if there is none."""
    hints = (hint for pattern, hint in _HINTS.items() if failure and re.match(pattern, failure.text, re.DOTALL))
    return f" ({hint})" if (hint := next(hints, "")) else ""
