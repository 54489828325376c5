"""Votes: decide labels, and each field of the answers of a user's step, by majority; measure how far votes agree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median_low
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel

from langchain_rageval.data.schema import Finding
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Voter
from langchain_rageval.judge.probabilities import decided_fields, labels_of, plain_type, verdict_label
from langchain_rageval.prompts.answer_schemas import ITEM_KEYS

_Vote = TypeVar("_Vote", str, bool)

UNDECIDED, AGREEMENT, CUT = "undecided", "agreement", "cut_contexts"
"""Keys of a state: findings on the sample without a majority, agreement on a user's answers, and contexts not read."""

NO_MAJORITY = "no majority of the votes"
"""Verdict on a whole sample, and why it has no score, if no verdict has more than half of the votes."""


def majority(votes: Sequence[_Vote], tie: _Vote) -> _Vote:
    """Return the value that more than half of the votes have; `tie` if there is no such majority."""
    winner = max(votes, key=votes.count)
    return winner if 2 * votes.count(winner) > len(votes) else tie


def agreement_rates(
    items: Mapping[int, str], voters: Sequence[Voter], votes: Sequence[Mapping[int, str]]
) -> Iterator[Finding]:
    """Yield a finding for each item: share of votes for its most frequent label, and the judges that disagree with it.

    Yields nothing if there is only one voter.

    Args:
        items: texts of the items by their numbers.
        voters: judge and draw (index of a repeated request) of each vote.
        votes: for each voter, a mapping of item numbers to labels.
    """
    if len(voters) < 2:
        return
    judges = list(dict.fromkeys(voter.judge for voter in voters))
    for number, text in items.items():
        labels = [vote[number] for vote in votes]
        winner, count = majority(labels, tie=""), max(Counter(labels).values())
        reason = f"{count} of {len(labels)} {'draws' if len(judges) == 1 else 'votes'}"
        if not winner and len(judges) == 1:
            reason += f": {', '.join(labels)}"
        if len(judges) > 1:
            pairs = zip(voters, labels, strict=True)
            dissent = [(voter.judge.identity, vote) for voter, vote in pairs if vote != winner]
            reason += "".join(f"; {judge}: {vote}" for judge, vote in dict.fromkeys(dissent))
        yield Finding(kind="agreement", number=number, text=text, verdict=f"{count / len(labels):.2f}", reason=reason)


def mean_probabilities(votes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean probability of each label; votes without probabilities (an empty mapping) are skipped."""
    known = [found for found in votes if found]
    means: dict[str, float] = {}
    for found in known:
        for label, probability in found.items():
            means[label] = means.get(label, 0.0) + probability / len(known)
    return means


Reducer = Literal["majority", "median", "mean"] | Callable[[Sequence[Any]], Any]

_EXPLANATION = re.compile(r"reason|explanation|comment|evidence|why|rationale|thought|обоснование", re.IGNORECASE)
_NUMBERING = frozenset({"number", "id", "index", "no", *ITEM_KEYS})
_ABSENT = "not named"


class AnswerVotes:
    """Combines several answers of one class into one answer, field by field.

    Truth values, labels and other values that are not numbers need a strict majority. Of whole numbers the lower median
    counts, of other numbers the mean. In lists of objects, objects with the same identifier are compared. An object's
    identifier is its first field with a whole number that is named `number`, `id`, `statement` or similar; else its
    label with such a name; else its first text that is not a reason. If the objects have no identifier, or two of a
    list have the same one, objects with the same place in the lists are compared. In lists of truth
    values, and in tuples and mappings, values with the same place or key are compared. In other lists, votes decide for
    each element whether the list contains it. An element that more than half of the votes lack is omitted. Texts are
    from the vote that has the most fields in common with the result, the first if there are several.

    Args:
        reducer: how numbers are decided, in place of the rule above; or a function from all answers to one answer.

    Attributes:
        is_undecided: True if a value that needs a strict majority has none, or half of the votes leave a field empty.
    """

    def __init__(self, reducer: Reducer | None = None) -> None:
        self.is_undecided = False
        self._reducer = reducer
        self._values: dict[str, list[Any]] = {}

    def answer(self, votes: Sequence[BaseModel]) -> BaseModel:
        """Return the answer that the votes decide; do not use it if `is_undecided` is True afterwards.

        Args:
            votes: an answer for each vote, all of one class.

        Raises:
            ConfigError: if `reducer` is a function and does not return an instance of the class of the votes.
        """
        if not callable(self._reducer):
            return self._joined(votes, "")
        for name in decided_fields(type(votes[0])):
            self._values[name] = [getattr(vote, name) for vote in votes]
        return checked_answer(self._reducer(votes), type(votes[0]), "reducer of the votes")

    def findings(self, voters: Sequence[Voter]) -> Iterator[Finding]:
        """Yield a Finding for each field that the votes decide. Call `answer` first; one vote gives no findings.

        The verdict is the share of the votes that have the most frequent value of the field, such as "0.67" for 2 of 3.
        The reason counts these votes and, for a jury, names the judges that disagree.

        Args:
            voters: judge and draw (index of a repeated request) of each vote, in the order of the votes.
        """
        names = dict(enumerate(self._values, 1))
        labels = [
            {number: _label(self._values[name][place]) for number, name in names.items()}
            for place in range(len(voters))
        ]
        yield from agreement_rates(names, voters, labels)

    def _joined(self, votes: Sequence[BaseModel], path: str) -> BaseModel:
        decided = {
            name: self._decide([getattr(vote, name) for vote in votes], annotation, f"{path}{name}")
            for name, annotation in decided_fields(type(votes[0])).items()
        }
        closest = max(votes, key=lambda vote: sum(getattr(vote, name) == value for name, value in decided.items()))
        return closest.model_copy(update=decided)

    def _decide(self, values: Sequence[Any], annotation: Any, path: str) -> Any:
        given = [value for value in values if value is not None]
        if len(given) * 2 <= len(values) and len(given) < len(values):
            self._values[path] = list(values)
            self.is_undecided = self.is_undecided or len(given) * 2 == len(values)
            return None
        if all(isinstance(value, BaseModel) for value in given):
            return self._joined(given, f"{path}.")
        if all(isinstance(value, Mapping) for value in given):
            return self._joined_mappings([value or {} for value in values], annotation, path)
        if all(isinstance(value, list | tuple) for value in given):
            if isinstance(given[0], tuple) or all(isinstance(item, bool) for value in given for item in value):
                by_place = [dict(enumerate(value or (), 1)) for value in values]
                return type(given[0])(self._joined_mappings(by_place, None, path).values())
            return self._joined_lists([[] if value is None else list(value) for value in values], path)
        self._values[path] = list(values)
        how = self._reducer or ("median" if annotation is int else "mean" if annotation is float else "majority")
        if how != "majority" and annotation in (int, float):
            return median_low(given) if how == "median" else fmean(given)
        labels = [_label(value) for value in given]
        winner = max(labels, key=labels.count)
        self.is_undecided = self.is_undecided or labels.count(winner) * 2 <= len(values)
        return given[labels.index(winner)]

    def _joined_mappings(self, votes: Sequence[Mapping[Any, Any]], annotation: Any, path: str) -> dict[Any, Any]:
        """Return the value that the votes decide for each key that more than half of them have."""
        kind = plain_type([*get_args(annotation), None, None][1])
        names = _in_order(votes)
        decided = {name: self._decide([vote.get(name) for vote in votes], kind, f"{path}[{name}]") for name in names}
        return {name: value for name, value in decided.items() if value is not None}

    def _joined_lists(self, votes: Sequence[Sequence[Any]], path: str) -> list[Any]:
        """Return what more than half of the lists have, ordered by its mean place in them."""
        by_name = [_named(vote) for vote in votes]
        joined = []
        for name in _in_order(by_name):
            given = [vote[name] for vote in by_name if name in vote]
            is_kept = len(given) * 2 > len(votes)
            if not isinstance(given[0], BaseModel):
                self._values[f"{path}: {name}"] = [name in vote for vote in by_name]
                joined += given[:1] if is_kept else []
            elif is_kept:
                joined.append(self._joined(given, f"{path}[{name}]."))
                lacking = [place for place, vote in enumerate(by_name) if name not in vote]
                for field in (key for key in self._values if key.startswith(f"{path}[{name}].")):
                    for place in lacking:
                        self._values[field].insert(place, _ABSENT)
            else:
                self._values[f"{path}[{name}]"] = [name in vote for vote in by_name]
        return joined


def checked_answer(answer: Any, kind: type[BaseModel], function: str) -> BaseModel:
    """Return the answer that a user's function made from several answers, after a check of its class.

    `kind` is the class that the answer must have. `function` names the function in the error message.

    Raises:
        ConfigError: if `answer` is not an instance of `kind`.
    """
    if isinstance(answer, kind):
        return answer
    raise ConfigError(
        f"{function} returned {type(answer).__name__}: it must return one {kind.__name__} for a list of them"
    )


def votes_on(answer: type[BaseModel]) -> bool:
    """Return True if votes can decide a field of an answer class: if it has a field that is not text."""
    return bool(decided_fields(answer))


def _in_order(votes: Sequence[Mapping[Any, Any]]) -> list[Any]:
    """Return the keys of mappings by their mean place, which does not depend on the order of the mappings."""
    places: dict[Any, list[int]] = {}
    for vote in votes:
        for place, name in enumerate(vote):
            places.setdefault(name, []).append(place)
    return sorted(places, key=lambda name: (fmean(places[name]), str(name)))


def _named(items: Sequence[Any]) -> dict[str, Any]:
    """Return the elements of a list by what tells them apart: their number or name, themselves, or their places."""
    if not items or not all(isinstance(item, BaseModel) for item in items):
        return {_label(item): item for item in items}
    kind = type(items[0])
    types = {name: plain_type(field.annotation) for name, field in kind.model_fields.items()}
    own = {*_NUMBERING, kind.__name__.lower()}
    numbers = [name for name, annotation in types.items() if annotation is int and name.lower() in own]
    texts = [name for name, annotation in types.items() if annotation is str and not _EXPLANATION.search(name)]
    labels = [name for name in types if name.lower() in own and labels_of(types[name])]
    places = [str(place) for place in range(1, len(items) + 1)]
    fields = [*numbers, *labels, *texts]
    names = [_label(getattr(item, fields[0])) for item in items] if fields else places
    return dict(zip(names if len({*names}) == len(names) else places, items, strict=True))


def _label(value: Any) -> str:
    """Return a value as the text of a vote: without the texts of an object."""
    if isinstance(value, BaseModel):
        return value.model_dump_json(include={*decided_fields(type(value))})
    return verdict_label(value)
