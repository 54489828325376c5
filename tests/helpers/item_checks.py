"""Checks of labelled items; `tests/benchmarks/surface_features.py` prints what they find."""

from collections import Counter
from collections.abc import Iterator, Sequence

from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.words import stems_of
from langchain_rageval.trust.examination import EMBEDDING_STEP, EXAMINATIONS, holds_term
from langchain_rageval.trust.items import CHUNK_STEPS, CRITERIA, LabelledItem

COMPLETE = ("en", "ru")
"""Languages whose items have their full number."""
HEADLINE = (
    *("extract_statements", "verify_statements", "classify_statements", "grade_contexts", "select_sentences"),
    *("regenerate_questions", "grade_relevance", "grade_rubric"),
)
_GRADES = {"grade_relevance": "01234", "grade_rubric": "0123", "grade_passage": "123"}
VERDICTS = {
    "extract_statements": "facts|no facts|stated|not stated",
    "verify_statements": "supported|contradicted|absent",
    "classify_statements": "TP|FP|FN",
    "grade_contexts": "useful|not useful",
    "select_sentences": "needed|not needed",
    "regenerate_questions": "answers|evasive",
    "critique_aspect": "yes|no",
    "detect_abstention": "abstains|answers",
    "detect_answerable": "answer|do not answer",
    "extract_entities": "named|not named",
    "find_entities": "found|not found",
    "rewrite_question": "named|not named",
    "list_turn_facts": "listed|not listed",
    "find_contradictions": "contradicted|consistent",
    "check_user_facts": "kept|asked again|ignored|not touched",
    "check_needs": "met|withdrawn|unmet",
    "review_question": "yes|no",
    "compare_questions": "yes|no",
    "review_follow_up": "yes|no",
    "find_passages": "needed|not needed",
    "answer_check": "accepted|rejected",
    EMBEDDING_STEP: "nearer|farther",
}
"""Verdicts of a step, apart from grades."""


def options_of(item: LabelledItem) -> Sequence[str]:
    """Return the verdicts that a label of an item can have; of grades the highest first."""
    if item.step in _GRADES:
        return _GRADES[item.step][::-1]
    known = VERDICTS[item.step].split("|")
    if item.step == "extract_statements":
        return known[2:] if item.terms else known[:2]
    return known


def problems(items: Sequence[LabelledItem], language: str, *, complete: bool = True) -> list[str]:
    """Return what is wrong with items; `complete` also counts them."""
    names = Counter(item.id for item in items)
    found = [f"{name}: {count} items of this name" for name, count in names.items() if count > 1]
    found += [f"{item.id}: {problem}" for item in items for problem in _item_problems(item, language)]
    pairs: dict[str, list[LabelledItem]] = {}
    for item in items:
        pairs.setdefault(item.pair, []).append(item)
    found += [f"{name}: {problem}" for name, members in pairs.items() for problem in _pair_problems(members)]
    return found + (list(_counts(items)) if complete else [])


def _item_problems(item: LabelledItem, language: str) -> Iterator[str]:
    known = {*_GRADES.get(item.step, VERDICTS.get(item.step, "").split("|"))}
    verdicts = {verdict for label in item.labels for verdict in label.accepted}
    if item.step not in EXAMINATIONS or verdicts - known:
        yield f"step {item.step} has no verdicts {sorted(verdicts - known)}"
    if not verdicts:
        yield "nothing is scored"
    elements = {
        "classify_statements": len(item.statements) + len(item.references),
        **dict.fromkeys(CHUNK_STEPS, len(item.contexts)),
        **{step: len(names) for step, names in CRITERIA.items()},
    }
    expected = elements.get(item.step) or len(item.statements) or len(item.terms) or None
    if item.step != "select_sentences" and len(item.labels) != (expected or 1):
        yield f"{len(item.labels)} labels for {expected or 1} elements"
    texts = [item.question, item.answer or "", *item.statements, *item.references]
    text = " ".join([*texts, *(turn.text for turn in item.history), *item.contexts])
    if item.step != EMBEDDING_STEP and detect_language(text) != language:
        yield f"not in {language}"
    yield from _evidence_problems(item)
    if item.step in ("extract_statements", "rewrite_question", "list_turn_facts"):
        yield from _term_problems(item)


_NAMED = {"extract_statements": ("stated",), "rewrite_question": ("named",), "list_turn_facts": ("listed",)}


def _evidence_problems(item: LabelledItem) -> Iterator[str]:
    sentences = NumberedContexts.of(item.contexts).sentences
    prose = [text for text in sentences.values() if not text.startswith("|")]  # tables may have the same head
    if len({*prose}) < len(prose):
        yield "a sentence occurs twice in the contexts"
    for label in item.labels:
        numbers = [*label.evidence, *([label.number] if label.number else [])]
        if lost := [n for n in numbers if not any(f"{known}.".startswith(f"{n}.") for known in sentences)]:
            yield f"no sentences {lost}"
        if item.step == "verify_statements" and bool(numbers) == ("absent" in label.accepted):
            yield f"evidence {numbers} for {label.accepted}"


def _term_problems(item: LabelledItem) -> Iterator[str]:
    if item.step != "extract_statements" and not item.history:
        yield "without a history, the step makes no call"
    if not item.terms:
        return
    named = [term for term, label in zip(item.terms, item.labels, strict=True) if label.accepted == _NAMED[item.step]]
    for term in {*item.terms} - {*named}:
        place, _, rest = term.rpartition(": ")
        others = [one for one in named if one.rpartition(": ")[0] == place]
        if same := [one for one in others if holds_term(one.replace("/", " "), rest)]:
            yield f"{same[0]!r} and {term!r} are told apart by no first five letters"
    for term in item.terms:
        if item.step == "list_turn_facts" and term.partition(": ")[0] not in ("statements", "facts", "needs"):
            yield f"{term!r} does not begin with its list"
        for part in term.rpartition(": ")[2].split(" + "):
            if not all(map(stems_of, part.split("/"))):
                yield f"{part!r} has no word of three letters and no number"


def _pair_problems(members: Sequence[LabelledItem]) -> Iterator[str]:
    if len({member.step for member in members}) > 1:
        yield "members of several steps"
    if len(members) == 1:
        if members[0].half == "hard":
            yield "a hard item without its other member"
        return
    one, other = members
    accepted = [tuple(label.accepted for label in member.labels) for member in members]
    if accepted[0] == accepted[1]:
        yield "both members have the same labels"
    if one.model_copy(update={"id": "", "labels": ()}) == other.model_copy(update={"id": "", "labels": ()}):
        yield "both members have the same texts"


def _counts(items: Sequence[LabelledItem]) -> Iterator[str]:
    """Return where items are missing, and where one constant verdict is right too often on the hard half."""
    for step in EXAMINATIONS.keys() - {EMBEDDING_STEP}:
        own = [item for item in items if item.step == step]
        plain = sum(item.half == "plain" for item in own)
        hard = [item for item in own if item.half == "hard"]
        least = (30, 16) if step in HEADLINE else (18, 10)
        if plain < least[0] or len(hard) < 2 * least[1]:
            yield f"{step}: {plain} plain items and {len(hard) / 2:g} hard pairs, not {least[0]} and {least[1]}"
        accepted = [label.accepted for item in hard for label in item.labels if label.accepted]
        verdicts = Counter(verdict for verdicts in accepted for verdict in verdicts)
        if accepted and max(verdicts.values()) / len(accepted) > 0.65:
            yield f"{step}: {verdicts.most_common(1)[0]} of {len(accepted)} labels of the hard half"
