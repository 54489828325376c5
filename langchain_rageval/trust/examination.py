"""Examination: test one judge step with probes (requests with known right verdicts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_core.messages import BaseMessage

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.data.schema import Failure, Finding, Sample
from langchain_rageval.errors import ConfigError, JudgeOutputError, ModelOutputError
from langchain_rageval.judge.endpoint import Endpoint, RequestMode
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.panels import map_members
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS, TurnFact, TurnFacts
from langchain_rageval.prompts.criteria import DEFAULT_SCALE, default_criteria
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.prompts.promptset import PromptSet
from langchain_rageval.run.requests import Call, Operation
from langchain_rageval.run.run import Run
from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.steps.check_turns import check_needs, check_user_facts, find_contradictions, list_turn_facts
from langchain_rageval.steps.classify_statements import classify_statements
from langchain_rageval.steps.detect import critique_aspect, detect_abstention, detect_answerable
from langchain_rageval.steps.entities import extract_entities, find_entities
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.grade_contexts import grade_contexts, grade_relevance, select_sentences
from langchain_rageval.steps.grade_rubric import grade_rubric
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.questions import recent_turns, regenerate_questions, rewrite_question
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.testset.candidate import ask_step
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import numbers_of, stems_of
from langchain_rageval.trust.items import CHUNK_STEPS, CRITERIA, LabelledItem


@dataclass
class ReplyLog:
    """Record of the replies to one probe (test request of a qualification).

    Attributes:
        rungs: number of valid replies by the way structured output was requested, such as "json_schema" or "prompt".
        repeated: True if a request had to be repeated because a reply was invalid, rejected or incomplete.
    """

    rungs: Counter[str] = field(default_factory=Counter)
    repeated: bool = False


def recording_judge(judge: Judge, log: ReplyLog, *, cached: bool) -> Judge:
    """Return a copy of a judge that also counts valid replies and notes repeated requests in a log.

    What one of the two finds out about the endpoint, such as a working output mode, is known to the other.

    Args:
        judge: the judge to copy.
        log: receives the records.
        cached: False bypasses the model's own cache.
    """
    recorder = copy(judge)
    vars(recorder)["_endpoint"] = _RecordingEndpoint(judge._endpoint, log, cached=cached)
    vars(recorder)["_fingerprint_text"] = judge._fingerprint_text  # a large model is described once, not per probe
    return recorder


class _RecordingEndpoint(Endpoint):
    """Endpoint of a recording judge; shares the capabilities and limits of the endpoint of the copied judge."""

    def __init__(self, known: Endpoint, log: ReplyLog, *, cached: bool) -> None:
        vars(self).update(vars(known))
        self.log = log
        if not cached:
            vars(self)["_models"] = known._models[1:] * 2

    def call(self, request: RequestContent, mode: RequestMode, tail: Sequence[BaseMessage], draw: int) -> Call:
        """Build the model call of a request, and log whether the request repeats an earlier one.

        It does if it has a `tail` (messages of earlier tries), or if its items had no usable reply before.
        """
        self.log.repeated = self.log.repeated or bool(tail) or request.repeated
        return super().call(request, mode, tail, draw)

    def record_success(self, mode: RequestMode, failures: Mapping[RequestMode, str]) -> None:
        """Record which request mode (such as JSON schema or tool call) led to a valid reply."""
        self.log.rungs[mode.rung] += 1
        super().record_success(mode, failures)


FACTS, NO_FACTS = "facts", "no facts"
EMBEDDING_STEP = "measure_similarity"
"""Name of the step that uses embeddings instead of the judge."""


@dataclass(frozen=True)
class CitedVerdict:
    """A verdict and the numbers of the sentences that the judge cited for it, such as "2.3"."""

    verdict: str
    cites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examination:
    """Procedure that tests one judge step: builds the step, runs it on a labelled item, and reads its verdicts.

    Attributes:
        build: returns the step for a judge, or for embeddings, and a labelled item.
        read_verdicts: returns one verdict for each label of the item from the state after the step.
        extra_state: returns the values that the step reads from the state besides the sample.
        reverse: True if the items have chunks or lists of statements whose order should not matter.
        padded: True if the items have chunks, to which an irrelevant sentence can be added.
        chance: share of right verdicts by guessing; None stands for the share of the best constant answer.
    """

    build: Callable[[Any, LabelledItem], Stage[State]]
    read_verdicts: Callable[[State, LabelledItem], list[CitedVerdict]]
    extra_state: Callable[[LabelledItem], State] = lambda _item: {}
    reverse: bool = False
    padded: bool = False
    chance: float | None = None

    def initial_state(self, item: LabelledItem) -> State:
        """Return the input of the step for a labelled item: the sample and `extra_state`."""
        fields = item.model_dump(include={"question", "answer", "contexts", "references", "history"})
        return {"sample": Sample.model_validate(fields), **self.extra_state(item)}


def reverse_item(item: LabelledItem) -> LabelledItem:
    """Return a labelled item in reverse order, to see whether the order changes the judge's verdicts.

    Its chunks are reversed or, if it has none, its statements and references.
    """
    labels = tuple(label.reversed(len(item.contexts)) for label in reverse_order(item, item.labels))
    sides = {} if item.contexts else {"statements": item.statements[::-1], "references": item.references[::-1]}
    return item.model_copy(update={"contexts": item.contexts[::-1], "labels": labels, **sides})


def reverse_order(item: LabelledItem, values: Sequence[Any]) -> Sequence[Any]:
    """Bring values, one for each label of an item, into the order of the labels of the reversed item, or back.

    If the item has chunks but its labels are not about chunks, the order is the same.
    """
    count = len(item.statements)
    if not item.contexts:
        return [*values[:count][::-1], *values[count:][::-1]]
    return values[::-1] if item.step in CHUNK_STEPS else values


def _finding_verdicts(findings: Sequence[Finding], kind: str) -> list[CitedVerdict]:
    return [CitedVerdict(finding.verdict, tuple(finding.cites)) for finding in findings if finding.kind == kind]


def _extraction_verdict(state: State, item: LabelledItem) -> list[CitedVerdict]:
    """Return a verdict for each term of an item, or one verdict on all statements of an item without terms.

    A term is "stated" if one statement holds all of its parts. Statements state facts if they are short and have
    exactly the numbers of the text.
    """
    statements: list[str] = state["answer_statements"]
    text = item.answer or ""
    if item.terms:
        return _verdicts_on_terms(item.terms, statements, ("stated", "not stated"))
    if not statements:
        return [CitedVerdict(NO_FACTS)]
    numbers = numbers_of(" ".join(statements))
    if numbers - numbers_of(f"{text} {item.question}"):
        return [CitedVerdict(f"{FACTS}, numbers made up")]
    if numbers_of(text) - numbers:
        return [CitedVerdict(f"{FACTS}, numbers lost")]
    if 2 * len(statements) < len(split_sentences(text)):
        return [CitedVerdict(f"{FACTS}, not taken apart")]
    return [CitedVerdict(FACTS)]


def holds_term(text: str, term: str) -> bool:
    """Return True if a text holds every part of a term; words are compared by their stems.

    The parts are separated by " + ", and alternative wordings of a part by "/". For "dog + two/2", the text must hold
    "dog", and "two" or "2".
    """
    stems = stems_of(text)
    return all(any(stems_of(wording) <= stems for wording in part.split("/")) for part in term.split(" + "))


def _verdicts_on_terms(terms: Sequence[str], texts: Sequence[str], verdicts: tuple[str, str]) -> list[CitedVerdict]:
    """Return the first of two verdicts for each term that one of some texts holds, else the second."""
    return [CitedVerdict(verdicts[not any(holds_term(text, term) for text in texts)]) for term in terms]


def _listed_verdicts(state: State, item: LabelledItem) -> list[CitedVerdict]:
    """Return for each term, such as "facts: dog + two", whether a listed entry of that list holds it."""
    verdicts: list[CitedVerdict] = []
    for name, _, term in (entry.partition(": ") for entry in item.terms):
        texts = [fact.text for fact in getattr(state["turn_facts"], name)]
        verdicts += _verdicts_on_terms([term], texts, ("listed", "not listed"))
    return verdicts


def _classification_verdicts(state: State, _item: LabelledItem) -> list[CitedVerdict]:
    """Return the verdicts on both sides; the labels do not tell a wrong statement from one that says more."""
    findings = state["classifications"][0]
    answers = _finding_verdicts(findings, "statement")
    plain = [CitedVerdict("FP") if given.verdict == "extra" else given for given in answers]
    return [*plain, *_finding_verdicts(findings, "reference_statement")]


def _sentence_verdicts(state: State, item: LabelledItem) -> list[CitedVerdict]:
    verdicts = {finding.cites[0]: finding.verdict for finding in state["context_sentences"] if finding.cites}
    return [CitedVerdict(verdicts[label.number]) for label in item.labels]


def _similarity_verdict(state: State, _item: LabelledItem) -> list[CitedVerdict]:
    near, far = state["similarities"]
    return [CitedVerdict("nearer" if near > far else "as near" if near == far else "farther")]


def _named_verdicts(state: State, item: LabelledItem) -> list[CitedVerdict]:
    """Return for each term of an item whether an extracted entity consists of it, with as many other words at most."""
    entities = [stems_of(entity) for entity in state["reference_entities"]]
    terms = [stems_of(term) for term in item.terms]
    named = [any(term <= entity and len(entity) <= 2 * len(term) for entity in entities) for term in terms]
    return [CitedVerdict("named" if is_named else "not named") for is_named in named]


def _critique_aspect(judge: Judge, item: LabelledItem) -> Stage[State]:
    """Return the step for the aspect of an item, by the package's definition if the judge's prompts have none."""
    own = [member.prompts.common.aspects for member in judge.members if member.prompts]
    known = all(item.aspect in aspects for aspects in own)
    definitions = PromptSet.default(detect_language(item.question)).common.aspects
    return critique_aspect(judge, item.aspect, definition=None if known else definitions[item.aspect])


class _Prompt(JudgeStep):
    """Step that sends a prompt of the test set generator, and adds the typed `reply`."""

    inputs: Mapping[str, Any]
    language_from: str

    def work(self, state: State) -> Operation[State]:
        """Send the request: one call."""
        reply = yield from ask_step(self, self.inputs, self.language_from)
        return state | {"reply": reply}


def _prompt_examination(
    prompt: str,
    inputs: Callable[[LabelledItem], Mapping[str, Any]],
    read_verdicts: Callable[[State, LabelledItem], list[CitedVerdict]] | None = None,
    **options: Any,
) -> Examination:
    """Return the examination of a step of the test set generator; by default its reply has a field per criterion."""

    def build(judge: Any, item: LabelledItem) -> Stage[State]:
        sent = {"inputs": inputs(item), "language_from": "\n".join([item.question, *item.contexts])}
        return _Prompt(prompt=prompt, judge=judge, answer=ANSWER_SCHEMAS[prompt], **sent)

    def read_criteria(state: State, _item: LabelledItem) -> list[CitedVerdict]:
        values = (getattr(state["reply"], name) for name in CRITERIA[prompt])
        return [CitedVerdict(("no", "yes")[value] if isinstance(value, bool) else str(value)) for value in values]

    return Examination(build, read_verdicts or read_criteria, **options)


def _passages(item: LabelledItem) -> list[dict[str, Any]]:
    return [{"passage": number, "text": text} for number, text in enumerate(item.contexts, 1)]


def _turn_facts(item: LabelledItem, name: str) -> State:
    facts = [TurnFact(turn=turn, text=text) for turn, text in zip(item.turns, item.statements, strict=True)]
    return {"turn_facts": TurnFacts(statements=[], facts=[], needs=[]).model_copy(update={name: facts})}


def _of(step: Callable[..., Stage[State]], **options: Any) -> Callable[[Any, LabelledItem], Stage[State]]:
    return lambda judge, _item: step(judge, **options)


def _found(name: str, kind: str) -> Callable[[State, LabelledItem], list[CitedVerdict]]:
    return lambda state, _item: _finding_verdicts(state[name], kind)


EXAMINATIONS: Mapping[str, Examination] = {
    "extract_statements": Examination(_of(extract_statements, of="answer"), _extraction_verdict),
    "verify_statements": Examination(
        _of(verify_statements, of="answer"),
        _found("answer_verdicts", "statement"),
        lambda item: {"answer_statements": list(item.statements)},
        reverse=True,
        padded=True,
    ),
    "classify_statements": Examination(
        _of(classify_statements),
        _classification_verdicts,
        lambda item: {"answer_statements": list(item.statements), "statements_by_reference": [list(item.references)]},
        reverse=True,
    ),
    "grade_contexts": Examination(
        _of(grade_contexts, against=lambda sample: "\n".join(sample.references)),
        _found("context_verdicts", "context"),
        reverse=True,
        padded=True,
    ),
    "select_sentences": Examination(_of(select_sentences), _sentence_verdicts, reverse=True, padded=True),
    "regenerate_questions": Examination(
        _of(regenerate_questions, count=3),
        lambda state, _: [CitedVerdict("evasive" if state["evasive"] else "answers")],
    ),
    "critique_aspect": Examination(_critique_aspect, _found("aspect_verdict", "aspect")),
    "detect_abstention": Examination(_of(detect_abstention, of="answer"), _found("answer_abstention", "criterion")),
    "detect_answerable": Examination(_of(detect_answerable), _found("answerable", "criterion")),
    "extract_entities": Examination(_of(extract_entities), _named_verdicts),
    "find_entities": Examination(
        _of(find_entities), _found("entity_verdicts", "entity"), lambda item: {"reference_entities": list(item.terms)}
    ),
    "grade_relevance": Examination(
        _of(grade_relevance, scale=(0, 4), pointwise=False),  # the scale of `llm_grader`
        _found("grades", "context"),
    ),
    "grade_rubric": Examination(
        lambda judge, _: grade_rubric(judge, default_criteria(), DEFAULT_SCALE, with_examples=True, replaceable=True),
        _found("rubric_grades", "criterion"),
    ),
    "rewrite_question": Examination(
        _of(rewrite_question),
        lambda state, item: _verdicts_on_terms(item.terms, [state["sample"].question], ("named", "not named")),
    ),
    "list_turn_facts": Examination(_of(list_turn_facts), _listed_verdicts),
    "find_contradictions": Examination(
        _of(find_contradictions), _found("consistency_verdicts", "turn"), lambda item: _turn_facts(item, "statements")
    ),
    "check_user_facts": Examination(
        _of(check_user_facts), _found("fact_verdicts", "turn"), lambda item: _turn_facts(item, "facts")
    ),
    "check_needs": Examination(
        _of(check_needs), _found("need_verdicts", "turn"), lambda item: _turn_facts(item, "needs")
    ),
    "grade_passage": _prompt_examination("grade_passage", lambda item: {"passage": item.contexts[0]}),
    "review_question": _prompt_examination(
        "review_question", lambda item: {"question": item.question, "passages": _passages(item)}
    ),
    "compare_questions": _prompt_examination(
        "compare_questions", lambda item: {"parent": item.references[0], "question": item.question}
    ),
    "review_follow_up": _prompt_examination(
        "review_follow_up",
        lambda item: {"turns": recent_turns(item.history), "question": item.question, "standalone": item.references[0]},
    ),
    "find_passages": _prompt_examination(
        "find_passages",
        lambda item: {"question": item.question, "passages": _passages(item)},
        lambda state, item: [
            CitedVerdict("needed" if number in state["reply"].passages else "not needed")
            for number in range(1, len(item.contexts) + 1)
        ],
        reverse=True,
    ),
    "answer_check": Examination(
        _of(verify_statements, of="answer"),
        lambda state, _: [
            CitedVerdict("accepted" if state["answer_verdicts"][0].verdict == "supported" else "rejected")
        ],
        lambda item: {"answer_statements": [item.answer or ""]},
    ),
    EMBEDDING_STEP: Examination(
        lambda embeddings, _: measure_similarity(
            embeddings, lambda state: (state["text"], [state["near"], state["far"]])
        ),
        _similarity_verdict,
        lambda item: {"text": item.text, "near": item.near, "far": item.far},
        chance=0.5,
    ),
}
"""Name of a step to its examination."""


Variant = Literal["plain", "reverse", "padded"]


@dataclass(frozen=True)
class Probe:
    """Test request to a judge: a repeat or a variant of a labelled item (request with known right verdicts).

    Attributes:
        item: the labelled item.
        variant: "plain" for the item unchanged, "reverse" for its chunks or statements in reverse order, "padded" for
            an irrelevant sentence at the end of each chunk.
        repeat: number of the repeat of a plain item, from 0.
    """

    item: LabelledItem
    variant: Variant = "plain"
    repeat: int = 0

    @property
    def is_first(self) -> bool:
        """True for the first of the probes that ask about the item as it is, not with chunks reversed, for example."""
        return self.variant == "plain" and self.repeat == 0

    @property
    def varied_item(self) -> LabelledItem:
        """The labelled item after the changes of the variant, such as chunks in reverse order."""
        if self.variant == "reverse":
            return reverse_item(self.item)
        if self.variant == "plain":
            return self.item
        padded = tuple(f"{context}\n{self.item.padding}" for context in self.item.contexts)
        return self.item.model_copy(update={"contexts": padded})


@dataclass(frozen=True)
class ProbeResult:
    """Verdicts of the judge on a probe (test request), or the error that the probe ended with.

    Attributes:
        probe: the request.
        verdicts: one for each label of the plain item, in the order of the labels; empty after an error.
        log: how the judge replied.
        failure: the error; None if the probe was answered.
        lost: True if the error is a transport error, not an invalid reply.
    """

    probe: Probe
    verdicts: Sequence[CitedVerdict] = ()
    log: ReplyLog = field(default_factory=ReplyLog)
    failure: Failure | None = None
    lost: bool = False


def list_probes(item: LabelledItem, repeats: int) -> Iterator[Probe]:
    """Yield the probes (test requests) of an item: the plain item `repeats` times, then its variants, each once.

    The plain item of the embedding step is yielded once. The variants are "reverse" (the chunks or statements in
    reverse order) and "padded" (an irrelevant sentence after each chunk), if they make sense for the step.
    """
    examination = EXAMINATIONS[item.step]
    yield from (Probe(item, repeat=repeat) for repeat in range(1 if item.step == EMBEDDING_STEP else repeats))
    if examination.reverse:
        yield Probe(item, "reverse")
    if examination.padded:
        yield Probe(item, "padded")


def ask_item(probe: Probe, subject: Any, run: Run) -> ProbeResult:
    """Send a probe to a judge or to embeddings, and return the verdicts or the error.

    A repeat of an item is sent again; it does not reuse the reply to an earlier repeat.

    Args:
        probe: the probe (test request), which names the judge step to test.
        subject: a Judge, or embeddings.
        run: supplies concurrency, retries and the usage meter.

    Raises:
        ConfigError: if the judge does not meet a requirement of the tested step.
    """
    examination, item, log = EXAMINATIONS[probe.item.step], probe.varied_item, ReplyLog()
    if isinstance(subject, Judge):
        cached = probe.variant != "plain" or probe.is_first
        subject = map_members(subject, lambda judge: recording_judge(judge, log, cached=cached))
    unshared_run = replace(run, single_flight=SingleFlight())  # repeats must not share a call in flight
    try:
        state = examination.build(subject, item).invoke(examination.initial_state(item), unshared_run.into(None))
    except ConfigError:
        raise
    except Exception as error:
        failure = Failure(error=type(error).__name__, message=redact_message(error, subject))
        lost = not isinstance(error, JudgeOutputError | ModelOutputError)
        return ProbeResult(probe, log=log, failure=failure, lost=lost)
    verdicts: Sequence[CitedVerdict] = examination.read_verdicts(state, item)
    return ProbeResult(probe, reverse_order(item, verdicts) if probe.variant == "reverse" else verdicts, log)
