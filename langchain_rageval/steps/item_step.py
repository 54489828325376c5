"""ItemStep: base class of steps in which a judge gives each item a label, and votes are counted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from statistics import median_low
from typing import Any, ClassVar, TypeVar

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, FindingKind, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, Voter, voters_of
from langchain_rageval.judge.probabilities import probabilities_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.votes import CUT, NO_MAJORITY, UNDECIDED, agreement_rates, majority, mean_probabilities

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Item:
    """Text that the judge labels, such as a statement or a chunk.

    Attributes:
        kind: kind of the `Finding` (the result about the item), such as "statement", "context" or "entity".
        number: number of the item.
        text: text of the item.
        labels: labels that the item can get, the strongest first. The last label holds if no label has a majority of
            the votes, or if the judge is not asked about the item.
        turn: number of the conversation turn that states it; 0 if it is not from a conversation.
    """

    kind: FindingKind
    number: int
    text: str
    labels: tuple[str, ...]
    turn: int = 0


@dataclass(frozen=True)
class Ruling:
    """Result for one item: label, reason, cited numbers (of sentences, turns or statements), label probabilities."""

    label: str
    reason: str = ""
    cites: tuple[str, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)


Items = Mapping[Any, Item]
"""Items by their keys, which are their own numbers or other values that identify them."""

Rulings = dict[Any, Ruling]
"""Rulings by the keys of their items."""

Part = tuple[Items, Any]
"""Items of one request, and what the judge is shown with them."""


def numbered_items(texts: Sequence[str], kind: FindingKind, labels: tuple[str, ...]) -> dict[int, Item]:
    """Return texts as items, numbered from 1."""
    return {number: Item(kind, number, text, labels) for number, text in enumerate(texts, 1)}


def request_items(name: str, items: Items) -> list[dict[str, Any]]:
    """Return items as data of a request, numbered from 1, whatever their own numbers are.

    `name` is the key of the number, as in `{"statement": 1, "text": "..."}` for the name "statement". Judges tend to
    number their verdicts from 1. These numbers then match the items, even if a request holds only some of all items:
    one of several slices, or the items that lacked a verdict when the judge was asked first.
    """
    return [
        {name: place, **({"turn": item.turn} if item.turn else {}), "text": item.text}
        for place, item in enumerate(items.values(), 1)
    ]


def slices(items: Mapping[_Key, _Item], size: int) -> list[dict[_Key, _Item]]:
    """Split numbered items into consecutive parts of at most `size` items."""
    keys = list(items)
    return [{key: items[key] for key in keys[start : start + size]} for start in range(0, len(keys), size)]


def background_windows(contexts: NumberedContexts, judge: Judge) -> Sequence[NumberedContexts | None]:
    """Return the parts of the contexts that fit one request to a judge; `[None]` if there are no sentences."""
    return [window for window in contexts.windows(judge.max_context_tokens) if window.sentences] or [None]


def with_windows(state: State, contexts: NumberedContexts, judge: Judge, *, only_first: bool = False) -> State:
    """Return a state with a finding on how many windows of the contexts were read; unchanged if one window is enough.

    Args:
        state: the state. The language of its sample is the language of the finding's reason.
        contexts: the contexts.
        judge: judge or jury that read the windows (parts of the contexts that fit one request).
        only_first: True if only the first window was read. The finding then says how many of all sentences were read.
    """
    by_member = [background_windows(contexts, member) for member in judge.members]
    count = max(map(len, by_member))
    if count == 1:
        return state
    total = len(contexts.sentences)
    if only_first:
        read = min(len(first.sentences) for first, *_ in by_member if first)
        verdict, note = "cut", Note("first-window-read", read=read, total=total)
    else:
        verdict, note = "windows", Note("read-in-windows", count=count)
    reason = explain(state["sample"].language_text, note, end="")
    finding = Finding(kind="extraction", number=1, text="contexts", verdict=verdict, reason=reason)
    return state | {CUT: [*state.get(CUT, ()), finding]}


class ItemStep(JudgeStep):
    """Step in which a judge labels items. It adds a Finding per item in order, then the agreement rates of the votes.

    Items are sent in slices of at most the judge's `max_statements`, contexts in windows of at most its
    `max_context_tokens`. `Item.labels` lists the labels that an item can get, the strongest first. Over slices and
    windows, the strongest label counts. Over votes, the label with more than half of the votes counts. If no label has
    more than half, the verdict is the last of `Item.labels`. But if the judge's answer is one verdict instead of a list
    (`list_field` is ""), the verdict is `NO_MAJORITY`, and the metric leaves the sample unscored. The judge is asked
    again about items without exactly one valid label; if no attempt is left, JudgeOutputError is raised. A subclass
    defines the attributes below and the question.

    Attributes:
        items_name: plural name of the items, in the request and in errors.
        number_field: name of the number of an item, in the request and in a verdict.
        list_field: name of the list of verdicts in the judge's answer; "" if the answer is the verdict on one item.
        label_field: field of a verdict that holds the judge's label.
        label_names: maps the judge's labels in lower case to labels of the findings, if they differ.
        is_proved: True if each label but the last needs a citation; without one, the judge is asked again, once, and a
            valid second verdict replaces the first.
        joins_reasons: True if the reasons of equal labels of an item in one vote are combined; else the first counts.
    """

    items_name: ClassVar[str] = ""
    number_field: ClassVar[str] = ""
    list_field: ClassVar[str] = "verdicts"
    label_field: ClassVar[str] = "verdict"
    label_names: ClassVar[Mapping[str, str]] = {}
    is_proved: ClassVar[bool] = False
    joins_reasons: ClassVar[bool] = False

    def rule_on(self, sample: Sample, items: Items, shown: Any = None) -> Operation[list[Finding]]:
        """Return the judge's findings on items; makes one request per part and vote (one repetition by one judge).

        A part is a slice of the items with a window of the contexts, both of limited size. Without items or contexts
        no request is made, and each item gets the last of its labels.

        Args:
            sample: the sample.
            items: the items.
            shown: contexts (`NumberedContexts`), of which each request shows a window. Subclasses that override
                `_parts` may take something else, such as the turns of a conversation, or None.
        """
        voters = voters_of(self.judge) if self._parts(sample, items, shown, self.judge.members[0]) else []
        votes: list[Rulings] = yield Gather([self._vote(voter, sample, items, shown) for voter in voters])
        given = votes or [_defaults(items)]
        findings = [self._finding(item, [vote[key] for vote in given]) for key, item in items.items()]
        for kind in dict.fromkeys(item.kind for item in items.values()) if len(voters) > 1 else ():
            own = {key: item for key, item in items.items() if item.kind == kind}
            labels = [{item.number: vote[key].label for key, item in own.items()} for vote in votes]
            findings += agreement_rates({item.number: item.text for item in own.values()}, voters, labels)
        return findings

    @abstractmethod
    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        """Return the inputs of the question to a judge about items."""

    def _block(self, shown: Any) -> NumberedContexts | None:
        """Return the contexts that a request shows."""
        return shown if isinstance(shown, NumberedContexts) else None

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        """Return what an answer about items can contain."""
        return AnswerLimits()

    def _objection(self, answer: Any, items: Items, shown: Any) -> str | None:
        """Return an error message for the judge if an answer that fits the schema is to be given again, else None."""
        return None

    def _question(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> JudgeQuestion[Any]:
        return self.build_question(
            self._inputs(judge, sample, items, shown),
            self._block(shown),
            language_from=sample.language_text,
            judge=judge,
            objection=partial(self._objection, items=items, shown=shown),
            limits=self._limits(items, shown),
        )

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        """Return the parts that a judge is asked about; none if there is nothing to ask."""
        windows = shown.windows(judge.max_context_tokens) if shown.sentences else []
        return list(product(slices(items, judge.max_statements), windows))

    def _again(self, part: Items, shown: Any, pending: Items) -> Part:
        """Return what is sent when the question about a part is repeated for some of its items."""
        return pending, shown

    def _key(self, verdict: Any, items: Items, shown: Any) -> Any:
        """Return the key of the item that a verdict is about; None if there is no such item."""
        return dict(enumerate(items, 1)).get(getattr(verdict, self.number_field))

    def _cites(self, verdict: Any, item: Item, shown: Any) -> Sequence[str]:
        """Return the numbers that a verdict cites, without those that do not exist."""
        return ()

    def _read(self, answer: Any, items: Items, shown: Any) -> Rulings:
        """Return the rulings of an answer; unknown items are dropped, conflicting and impossible rulings omitted."""
        if not self.list_field:
            return {key: self._ruling(answer, item, shown) for key, item in items.items()}
        given: dict[Any, list[Ruling]] = {}
        for verdict in getattr(answer, self.list_field):
            if (key := self._key(verdict, items, shown)) in items:
                given.setdefault(key, []).append(self._ruling(verdict, items[key], shown))
        return {
            key: self._joined(rulings)
            for key, rulings in given.items()
            if len({ruling.label for ruling in rulings}) == 1 and rulings[0].label in items[key].labels
        }

    def _ruling(self, verdict: Any, item: Item, shown: Any) -> Ruling:
        label, names = str(getattr(verdict, self.label_field)), self.label_names
        known = {names.get(name, name): p for name, p in probabilities_of(verdict, self.label_field).items()}
        cites = tuple(self._cites(verdict, item, shown))
        return Ruling(names.get(label.lower(), label), getattr(verdict, "reason", ""), cites, known)

    def _problem(self, missing: Items) -> str:
        """Return the error message about items without a ruling."""
        return f"no single verdict for the {self.items_name} {list(missing)}"

    def with_findings(self, state: State, name: str, findings: Sequence[Finding]) -> State:
        """Return a state with the findings added under the key `name`.

        If a finding has the verdict `NO_MAJORITY`, the whole list is also added under the key "undecided". The metric
        then leaves the sample unscored.
        """
        undecided = any(finding.verdict == NO_MAJORITY for finding in findings)
        return state | {name: findings} | ({UNDECIDED: findings} if undecided else {})

    def _decide(self, labels: Sequence[str], item: Item) -> str:
        """Return the label that the votes decide."""
        return majority(labels, tie=item.labels[-1] if self.list_field else NO_MAJORITY)

    def _probabilities(self, rulings: Sequence[Ruling], item: Item) -> dict[str, float]:
        return mean_probabilities([ruling.probabilities for ruling in rulings])

    def _rank(self, ruling: Ruling, item: Item) -> float:
        """Return a rank that is lower for a stronger ruling, by which those of slices and windows are chosen."""
        return item.labels.index(ruling.label)

    def _joined(self, rulings: Sequence[Ruling]) -> Ruling:
        return combine(rulings) if self.joins_reasons else rulings[0]

    def _vote(self, voter: Voter, sample: Sample, items: Items, shown: Any) -> Operation[Rulings]:
        parts = self._parts(sample, items, shown, voter.judge)
        settled: list[Rulings] = yield Gather([self._settle_shared(voter, sample, *part) for part in parts])
        vote = _defaults(items)
        for key, item in items.items():
            if rulings := [part[key] for part in settled if key in part]:
                ranked = sorted(rulings, key=lambda ruling: self._rank(ruling, item))
                vote[key] = self._joined([ruling for ruling in ranked if ruling.label == ranked[0].label])
        return vote

    def _settle_shared(self, voter: Voter, sample: Sample, part: Items, shown: Any) -> Operation[Rulings]:
        question = self._question(voter.judge, sample, part, shown)
        work = self._settle(voter, sample, question, part, shown)
        rulings: Rulings = yield shared_question(voter.judge, question, voter.draw, work, part)
        return rulings

    def _settle(
        self, voter: Voter, sample: Sample, question: JudgeQuestion[Any], part: Items, shown: Any
    ) -> Operation[Rulings]:
        """Ask one judge about the items of a part until each has a ruling; repeat the question for those without one.

        A ruling that lacks a citation is asked for again, once; a later ruling replaces it.

        Raises:
            JudgeOutputError: if no attempt is left for an item without a ruling.
        """
        attempts, settled = Attempts(voter.judge.attempts), Rulings()
        repeated: set[Any] = set()
        pending, sent = part, (part, shown)
        while pending and attempts.left:
            if pending is not part:
                sent = self._again(part, shown, pending)
                question = self._question(voter.judge, sample, *sent)
                question = replace(question, request=replace(question.request, repeated=True))
            try:
                answer = yield from ask_judge(voter.judge, question, attempts, voter.draw)
            except JudgeOutputError:
                if part.keys() <= settled.keys():
                    break
                raise
            settled |= {key: ruling for key, ruling in self._read(answer, *sent).items() if key in pending}
            unproven = {key for key in pending if key in settled and self._is_unproven(settled[key], part[key])}
            unproven -= repeated
            repeated |= unproven
            pending = {key: item for key, item in part.items() if key not in settled or key in unproven}
        if missing := {key: item for key, item in part.items() if key not in settled}:
            raise JudgeOutputError(self._problem(missing), self.get_name(), answer.model_dump_json())
        return settled

    def _is_unproven(self, ruling: Ruling, item: Item) -> bool:
        return self.is_proved and ruling.label != item.labels[-1] and not ruling.cites

    def _finding(self, item: Item, rulings: Sequence[Ruling]) -> Finding:
        label = self._decide([ruling.label for ruling in rulings], item)
        ruling = combine([ruling for ruling in rulings if ruling.label == label] or [Ruling(label)])
        return Finding(
            kind=item.kind,
            number=item.number,
            text=item.text,
            verdict=label,
            reason=ruling.reason,
            cites=list(ruling.cites),
            probabilities=self._probabilities(rulings, item),
        )


class GradeStep(ItemStep):
    """Step whose labels are grades on a scale. If there are several votes, the lower median decides.

    Attributes:
        scale: the lowest and the highest grade.
    """

    list_field = "grades"
    label_field = "grade"

    scale: tuple[int, int]

    @property
    def grades(self) -> tuple[int, ...]:
        """Grades of the scale, the lowest first."""
        return tuple(range(self.scale[0], self.scale[1] + 1))

    @property
    def labels(self) -> tuple[str, ...]:
        """Grades as labels of an item, the highest first."""
        return tuple(map(str, reversed(self.grades)))

    def _problem(self, missing: Items) -> str:
        return f"no single grade from {self.scale[0]} to {self.scale[1]} for the {self.items_name} {list(missing)}"

    def _decide(self, labels: Sequence[str], item: Item) -> str:
        return str(median_low(map(int, labels)))

    def _probabilities(self, rulings: Sequence[Ruling], item: Item) -> dict[str, float]:
        """Return the probabilities of the grades; the judge's probability of any other number is left out."""
        means = super()._probabilities(rulings, item)
        valid = {grade: probability for grade, probability in means.items() if grade in item.labels}
        total = sum(valid.values())
        return {grade: probability / total for grade, probability in valid.items()} if total else {}


def combine(rulings: Sequence[Ruling]) -> Ruling:
    """Return one ruling for several rulings with the same label; their distinct reasons and citations are joined."""
    if len(rulings) == 1:
        return rulings[0]
    reasons = dict.fromkeys(ruling.reason for ruling in rulings if ruling.reason)
    cites = dict.fromkeys(cite for ruling in rulings for cite in ruling.cites)
    return Ruling(rulings[0].label, " ".join(reasons), tuple(cites), rulings[0].probabilities)


def _defaults(items: Items) -> Rulings:
    return {key: Ruling(item.labels[-1]) for key, item in items.items()}
