"""qualify_judge: measures how far a judge can be trusted, with one layout of requests or several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Unpack, get_args, overload
from zlib import crc32

from langchain_core.embeddings import Embeddings

from langchain_rageval._internal.description import NotDescribable
from langchain_rageval.data.instrument import step_digests
from langchain_rageval.errors import ConfigError, list_choices
from langchain_rageval.judge.endpoint import model_identity
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.judge.panels import map_members
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import OfflineJudge
from langchain_rageval.prompts.layout import Layout
from langchain_rageval.report.tables import Shown, number_text
from langchain_rageval.run.progress import show_progress
from langchain_rageval.run.run import CALL_DEFAULTS, CallOptions, Run, build_run, fill_defaults
from langchain_rageval.trust.examination import EMBEDDING_STEP, EXAMINATIONS, Probe, ProbeResult, ask_item, list_probes
from langchain_rageval.trust.fitness import STEPS_OF, assess_metric, step_statistics
from langchain_rageval.trust.items import LabelledItem, labelled_items, load_items, read_items, rule_verdicts
from langchain_rageval.trust.qualification import Qualification, save_json, today


class LayoutComparison(Shown, dict[Layout, Qualification]):
    """Mapping of a layout (order of the parts of a request) to a judge's qualification; shown as one table.

    The layouts are tried on the same labelled items. If the intervals of two layouts overlap, their shares of right
    verdicts may differ by chance.
    """

    headings = ("step", "layout", "verdict", "right", "share", "interval", "valid at once", "tokens")

    @property
    def title(self) -> str:
        """Heading of the comparison: the judge, the language and the layouts."""
        first = next(iter(self.values()))
        return f"{first.judge} in {first.language!r}, layouts {', '.join(self)}"

    def cells(self) -> list[list[str]]:
        """Return a table row for each judge step and layout: verdict, right verdicts, valid replies and tokens."""
        first, rows = next(iter(self.values())), []
        for name in first.steps:
            for layout, qualification in self.items():
                step = qualification.steps[name]
                right = f"{step.right.hits:.0f}/{step.right.of}"
                shares = [step.right.percent, step.right.interval, step.valid.percent]
                rows.append([name, layout, step.verdict, right, *shares, number_text(step.tokens, ",")])
        return rows

    def lines(self) -> list[str]:
        """Return a line of text for each step and layout."""
        return [
            f"{name}, {layout}: {verdict}. Right {right}, {share} {interval}; valid at once {valid}; tokens {tokens}"
            for name, layout, verdict, right, share, interval, valid, tokens in self.cells()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary from each layout to a dictionary of the fields of its qualification, such as `steps`."""
        return {layout: qualification.to_dict() for layout, qualification in self.items()}

    def to_json(self, path: str | Path) -> None:
        """Write `to_dict()` to a JSON file."""
        save_json(path, self.to_dict())


Items = str | Path | Iterable[Mapping[str, Any] | LabelledItem]
"""Labelled items: a file, or records in the form that the README of the packaged items describes."""

_PUBLIC_TEXTS = "The texts are public and old: a model may have read them, with their labels."


@overload
def qualify_judge(
    judge: JudgeLike,
    embeddings: Embeddings | None = None,
    language: str = "ru",
    *,
    items: Items | None = None,
    quick: bool = False,
    repeats: int = 2,
    layouts: None = None,
    progress: bool = True,
    **options: Unpack[CallOptions],
) -> Qualification: ...


@overload
def qualify_judge(
    judge: JudgeLike,
    embeddings: Embeddings | None = None,
    language: str = "ru",
    *,
    items: Items | None = None,
    quick: bool = False,
    repeats: int = 2,
    layouts: Sequence[Layout],
    progress: bool = True,
    **options: Unpack[CallOptions],
) -> LayoutComparison: ...


def qualify_judge(
    judge: JudgeLike,
    embeddings: Embeddings | None = None,
    language: str = "ru",
    *,
    items: Items | None = None,
    quick: bool = False,
    repeats: int = 2,
    layouts: Sequence[Layout] | None = None,
    progress: bool = True,
    **options: Unpack[CallOptions],
) -> Qualification | LayoutComparison:
    """Send a judge requests with known right verdicts, and measure how often the judge's verdicts are right.

    The requests are labelled items. Each tests one judge step (one kind of request), such as "verify_statements".
    Every item is run `repeats` times. For some steps, items with chunks or lists of statements are run once more in
    reverse order, and items with chunks are run once more with an irrelevant sentence in each chunk. Repeats bypass the
    model's cache. Most items are in pairs that differ in one detail. The confidence intervals of the statistics
    count each pair, with all of its verdicts, as one unit. `docs/how-to/qualify-a-judge.md` gives calls and tokens.

    Args:
        judge: a chat model, another Runnable, or a Judge with the options that you will use.
        embeddings: embeddings to examine as well, for the metrics that compare texts by embeddings.
        language: language of the labelled items, "ru" or "en".
        items: your own labelled items in place of the packaged ones: a JSON Lines or YAML file, or records; see
            `docs/how-to/qualify-a-judge.md`.
        quick: True to run only a third of the pairs of each step.
        repeats: how often each unchanged item is run.
        layouts: layouts (orders of the parts of a request) to compare: "contexts_first", "instruction_first" and
            "shared_instructions". The items are run with each layout; None runs them with the judge's own layout.
        progress: show progress on stderr.
        **options: of the model calls, described in `CallOptions`: `max_concurrency=16`, `timeout=60.0`, `retry=None`,
            `price=None`.

    Returns:
        The statistics of each judge step, and for each metric a verdict on the judge, such as "fit" or "unfit". With
        `layouts`, a mapping of each layout to such a result.

    Raises:
        ConfigError: if an option or an item is invalid, or the first call to the judge or to the embeddings fails.
        TypeError: if an option does not exist.
    """
    settings = fill_defaults(qualify_judge, options, CALL_DEFAULTS)
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise ConfigError(f"repeats must be a whole number of at least 1, got {repeats!r}")
    if not isinstance(embeddings, Embeddings | None):
        raise ConfigError(f"embeddings must be LangChain Embeddings, got {type(embeddings).__name__}")
    if layouts is not None:
        known = get_args(Layout)
        is_list = isinstance(layouts, Sequence) and not isinstance(layouts, str)
        if not is_list or not layouts or any(layout not in known for layout in layouts):
            raise ConfigError(f"layouts must be a list of {', '.join(known)}, got {layouts!r}")
    chosen, notes = _chosen_items(items, language, quick)
    chosen = [item for item in chosen if item.step != EMBEDDING_STEP or embeddings is not None]
    examined = Judge.of(judge)

    def qualify(judge: Judge) -> Qualification:
        return _qualify(judge, embeddings, chosen, language, repeats, settings, notes, progress=progress)

    if layouts is None:
        return qualify(examined)
    return LayoutComparison(
        {layout: qualify(map_members(examined, partial(replace, layout=layout))) for layout in layouts}
    )


def _chosen_items(items: Items | None, language: str, quick: bool) -> tuple[list[LabelledItem], list[str]]:
    """Return the packaged or own items, of which `quick` keeps a third of the pairs of each step, and notes on them.

    Raises:
        ConfigError: if there are no items, or they are invalid.
    """
    if items is None:
        chosen, notes = list(labelled_items(language)), [_PUBLIC_TEXTS]
    else:
        chosen = load_items(items) if isinstance(items, str | Path) else read_items(items, "items")
        notes = []
    for step in sorted({item.step for item in chosen} - EXAMINATIONS.keys()):
        raise ConfigError(f"no step is named {step}; the steps are {list_choices(step, EXAMINATIONS)}")
    if not chosen:
        raise ConfigError("there are no labelled items: write at least one")
    if not quick:
        return chosen, notes
    groups: dict[tuple[str, str], set[str]] = {}
    for item in chosen:
        groups.setdefault((item.step, item.half), set()).add(item.pair)
    drawn = (sorted(pairs, key=lambda pair: crc32(pair.encode())) for pairs in groups.values())
    kept = {pair for pairs in drawn for pair in pairs[: -(-len(pairs) // 3)]}
    quickly = [item for item in chosen if item.pair in kept]
    return quickly, [f"A third of the labelled items was asked, {len(quickly)} of {len(chosen)}.", *notes]


def _qualify(
    examined: Judge,
    embeddings: Embeddings | None,
    items: Sequence[LabelledItem],
    language: str,
    repeats: int,
    settings: Any,
    notes: Sequence[str],
    *,
    progress: bool,
) -> Qualification:
    """Run the labelled items with one judge and return the statistics and verdicts."""
    run = build_run(settings)
    runs = {item.step: run.metered() for item in items}
    probes = [probe for item in items for probe in list_probes(item, repeats)]
    counting = threading.Lock()
    with show_progress(len(probes), run.meter, show=progress, unit="questions") as display:

        def answer(probe: Probe) -> ProbeResult:
            subject = embeddings if probe.item.step == EMBEDDING_STEP else examined
            result = ask_item(probe, subject, runs[probe.item.step])
            with counting:
                display.advance(result.failure is not None)
            return result

        workers = 2 * settings["max_concurrency"]  # those that wait for a retry hold no slot
        results = _run_all(probes, answer, run, workers)
    hits = {item: _baseline_hits(item, language) for item in items}
    steps = {
        step: step_statistics(
            step, [result for result in results if result.probe.item.step == step], hits, step_run.meter.usage
        )
        for step, step_run in runs.items()
    }
    fitness = {step: (statistics.verdict, statistics.reasons) for step, statistics in steps.items()}
    verdicts = {metric: assess_metric(fitness, metric) for metric in STEPS_OF}
    models = [inner for member in examined.members for inner in inner_models(member.model)]
    own = [getattr(model, "report_note", None) for model in [*models, embeddings]]
    return Qualification(
        judge=examined.identity + (f", {model_identity(embeddings)}" if embeddings is not None else ""),
        language=language,
        layout=", ".join(dict.fromkeys(member._endpoint.layout for member in examined.members)),
        repeats=repeats,
        steps=steps,
        verdict={metric: verdict for metric, (verdict, _) in verdicts.items()},
        reasons={metric: reason for metric, (_, reason) in verdicts.items()},
        notes=[*dict.fromkeys(filter(None, own)), *notes],
        date=today(),
        examined=_examined_steps(examined, items),
    )


def _examined_steps(judge: Judge, items: Iterable[LabelledItem]) -> dict[str, str]:
    """Return a digest of judge and prompts for each step that was examined; none of a model that is unknown."""
    first = {item.step: item for item in items if item.step != EMBEDDING_STEP}
    try:
        return step_digests([EXAMINATIONS[step].build(judge, item).description for step, item in first.items()])
    except NotDescribable:
        return {}


def _run_all(
    probes: Sequence[Probe], answer: Callable[[Probe], ProbeResult], run: Run, at_once: int
) -> list[ProbeResult]:
    """Run the first probe (test request) of the judge and of the embeddings, then all others in threads.

    Raises an error if the first probe shows that a model cannot be reached.
    """
    firsts = {"embeddings" if probe.item.step == EMBEDDING_STEP else "judge": probe for probe in reversed(probes)}
    first_results = {subject: answer(probe) for subject, probe in firsts.items()}
    for subject, result in first_results.items():
        if result.lost and result.failure:
            raise ConfigError(f"the first call to the {subject} failed: {result.failure.text}", result.failure)
    others = [probe for probe in probes if probe not in firsts.values()]
    return [*first_results.values(), *run.threads.stream([partial(answer, probe) for probe in others], at_once)]


@lru_cache(maxsize=4096)
def _baseline_hits(item: LabelledItem, language: str) -> dict[str, list[bool]]:
    """Return whether word overlap and surface rules get each scored label of an item right."""
    subject = HashingEmbeddings() if item.step == EMBEDDING_STEP else Judge(OfflineJudge())
    words = [verdict.verdict for verdict in ask_item(Probe(item), subject, Run()).verdicts]
    verdicts = {"word_overlap": words or [""] * len(item.labels), "rules": rule_verdicts(item, language)}
    return {
        name: [verdict in label.accepted for label, verdict in zip(item.labels, own, strict=True) if label.accepted]
        for name, own in verdicts.items()
    }
