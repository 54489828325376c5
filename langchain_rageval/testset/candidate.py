"""Candidate: a question in progress, with its history; CandidateStep: base class of the steps that change it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, Self

from langchain_core.runnables import RunnableConfig
from pydantic import Field

from langchain_rageval._internal.code_identity import short_digest
from langchain_rageval.data.schema import Failure, InputModel, Turn
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import Stage
from langchain_rageval.text.words import content_words, words_of


class Passage(InputModel):
    """A piece of a document.

    Attributes:
        id: stable identifier; by default a hash of source, span and text.
        text: text of the passage.
        source: name of the document.
        start: offset of the first character in the document.
        end: offset after the last character. `text == document[start:end]` if the splitter kept the text. If the
            splitter changed white space, the span holds the same words. If it rewrote words, the span is the whole
            document.
        metadata: metadata of the document, with additions of the splitter.
    """

    id: str = ""
    text: str
    source: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    metadata: dict[str, Any] = Field(default_factory=dict)

    def model_post_init(self, _context: Any, /) -> None:
        """If the passage has no id, set the id to a hash of source, span and text."""
        if not self.id:
            content = json.dumps([self.source, self.start, self.end, self.text])
            object.__setattr__(self, "id", short_digest(content))


SIMPLE = "simple"
"""Evolution of a question that no evolution changed."""

ADOPTED = "adopted"
"""Evolution of a question that a user asked."""


class Reason:
    """Texts of the reasons for the rejection of a candidate, such as "not evolved".

    They appear in `Candidate.rejected`, in `Testset.yields` and in journals.
    """

    PASSAGE_REJECTED = "passage rejected"
    NO_KEYPHRASE = "no key phrase left"
    QUESTION_REJECTED = "question rejected"
    BLANK_QUESTION = "blank question"
    NO_NEAR_PASSAGE = "no passage is near enough"
    NO_NUMBERS = "no numbers in the passage"
    NOT_EVOLVED = "not evolved"
    NOT_IN_PASSAGES = "no passage answers it"
    NOT_ALL_NEEDED = "not all passages are needed"
    NOT_ANSWERED = "not answerable from its passages"
    ANSWERED_BY_DOCUMENTS = "the documents answer it"
    KNOWN_WITHOUT_DOCUMENTS = "known without the documents"
    UNSUPPORTED = "unsupported answer"
    REFUSAL = "refusal"
    OTHER_LANGUAGE = "other language"
    COPIED = "copied answer"
    DUPLICATE = "near-duplicate"
    FAILED = "failed: "  # the class name of an error follows
    DROPPED_BY_REVIEWER = "dropped by a reviewer"
    BUDGET_SPENT = "the budget is spent"


class Trial(InputModel):
    """One entry in the history of a question: an attempt to write, rewrite or check it, or to grade its passage.

    Attributes:
        kind: name of the step that made the attempt: "passage", "seed", "given", "rewrite", "compress", "review" for a
            person's decision, or the name of an evolution or filter.
        question: text of the question after the attempt; "" before the question is written.
        accepted: True if the attempt was accepted.
        feedback: comment of the critic, or the reason for the rejection.
    """

    kind: str
    question: str = ""
    accepted: bool = True
    feedback: str = ""


class Objection(NamedTuple):
    """Problem with the `text` that the writer (a chat model) generated, such as a question with two question marks.

    `problem` is the explanation that the writer reads when the text is requested again. `reason` is the reason with
    which the candidate is rejected if no request gives a usable text.
    """

    reason: str
    problem: str
    text: str


class Candidate(InputModel):
    """A question that is being generated.

    Every step takes a candidate and returns a candidate. A rejected candidate passes through all later steps unchanged.

    Attributes:
        passages: passages that the question is about. The first is the drawn passage, from which the candidate started.
        question: current text of the question; "" before it is written.
        parent: question before the last evolution.
        chat_history: earlier turns of the conversation that the question continues, the oldest first; `[]` if there
            are none.
        standalone: the same question in a form that needs no earlier turns; "" if there are no turns.
        evolution: names of the evolutions applied so far, your own steps included, joined by "+"; "simple" if there are
            none.
        answerable: True if the passages are meant to answer the question.
        needed: ids of passages that must all be necessary for the answer; `[]` if there is no such condition.
        nearest: for a question that is meant to be unanswerable: the passages of the whole corpus that a search by
            words and by meaning finds. They must not answer the question either.
        metadata: metadata that evolutions add to the row, such as `persona`, `style` and `bridge`.
        grade: mean of the four grades of the drawn passage, from 1 to 3; None before it is graded.
        keyphrases: key phrases of the drawn passage.
        keyphrase: key phrase that the question is about; "" selects the first of `keyphrases`.
        draw: number of earlier candidates from the same drawn passage; each candidate uses another key phrase.
        seed: random seed of the run.
        reference: reference answer; None before it is written.
        evidence: sentences of the passages that support the reference answer.
        tree_id: id of the tree of questions about one fact; "" outside of a tree.
        history: all attempts, in order.
        rejected: reason for the rejection, in English; None if the candidate is not rejected.
    """

    passages: list[Passage] = Field(min_length=1)
    question: str = ""
    parent: str = ""
    chat_history: list[Turn] = Field(default_factory=list)
    standalone: str = ""
    evolution: str = SIMPLE
    answerable: bool = True
    needed: list[str] = Field(default_factory=list)
    nearest: list[Passage] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    grade: float | None = None
    keyphrases: list[str] = Field(default_factory=list)
    keyphrase: str = ""
    draw: int = 0
    seed: int = 0
    reference: str | None = None
    evidence: list[str] = Field(default_factory=list)
    tree_id: str = ""
    history: list[Trial] = Field(default_factory=list)
    rejected: str | None = Field(default=None, min_length=1)

    def __getitem__(self, name: str) -> Any:
        """Return a field by its name, as `operator.itemgetter` does in chains."""
        return getattr(self, name)

    def __str__(self) -> str:
        """Return the question, so that `{"question": RunnablePassthrough()} | prompt` shows it."""
        return self.question

    @property
    def standalone_question(self) -> str:
        """Question in a form that needs no earlier turns: `standalone` if it is set, else `question`."""
        return self.standalone or self.question

    @property
    def drawn_text(self) -> str:
        """Text of the drawn passage, the first of `passages`; its language selects the language of the prompts."""
        return self.passages[0].text

    def shown(self, nearest: Sequence[Passage] = ()) -> list[dict[str, Any]]:
        """Return number (from 1) and text of each passage for a prompt: `passages`, then the argument `nearest`."""
        return [{"passage": number, "text": one.text} for number, one in enumerate([*self.passages, *nearest], 1)]

    def replace(self, **changes: object) -> Self:
        """Return a copy of the candidate with some fields changed."""
        return self.model_copy(update=changes)

    def with_trial(self, kind: str, *, accepted: bool = True, feedback: str = "") -> Self:
        """Return a copy of the candidate whose history has one more trial (attempt) with the current question.

        Args:
            kind: name of the step that made the attempt.
            accepted: True if the attempt was accepted.
            feedback: comment of the critic, or the reason for the rejection.
        """
        trial = Trial(kind=kind, question=self.question, accepted=accepted, feedback=feedback)
        return self.replace(history=[*self.history, trial])

    def with_question(self, question: str, kind: str) -> Self:
        """Return a copy of the candidate with a new question, and with one more trial (attempt) in its history.

        `kind` is the name of the step that wrote the question, and becomes the `kind` of the trial. The trial counts as
        accepted until a step rejects the question.
        """
        return self.replace(question=question.strip()).with_trial(kind)

    def with_evolution(self, name: str) -> Self:
        """Return a copy of the candidate with the name of one more evolution at the end of `evolution`."""
        earlier = [] if self.evolution == SIMPLE else [self.evolution]
        return self.replace(evolution="+".join([*earlier, name]))

    def with_verdict(self, accepted: bool, feedback: str) -> Self:
        """Return a copy of the candidate whose last trial records whether the current question was accepted.

        If no step wrote the question, a trial (attempt) of kind "given" is added instead.
        """
        if not self.history or self.history[-1].question != self.question:
            return self.with_trial("given", accepted=accepted, feedback=feedback)
        trial = self.history[-1].model_copy(update={"accepted": accepted, "feedback": feedback})
        return self.replace(history=[*self.history[:-1], trial])

    @property
    def objection(self) -> str:
        """Feedback of the last trial (attempt) if that trial was rejected, else ""."""
        return next((last.feedback for last in self.history[-1:] if not last.accepted), "")

    @property
    def has_failed(self) -> bool:
        """True if the candidate was rejected because a call failed, not because of its question."""
        return (self.rejected or "").startswith(Reason.FAILED)

    @property
    def failure(self) -> Failure | None:
        """The error of the call that failed; None if `has_failed` is False."""
        if not self.has_failed:
            return None
        error = (self.rejected or "").removeprefix(Reason.FAILED)
        return Failure(error=error, message=self.objection.removeprefix(f"{error}: "))

    def refuse(self, kind: str, objection: Objection) -> Self:
        """Return a copy of the candidate that is rejected because a text that the writer generated is unusable.

        The text is a question or an answer. The reason of the objection becomes `rejected`. The history has one more
        trial (attempt), which is not accepted: its `kind` is the given name of the step, and its `feedback` states the
        problem. A refused question is in this trial only; `question` stays the same.
        """
        if objection.reason == Reason.QUESTION_REJECTED:
            refused = self.replace(question=objection.text).with_trial(kind, accepted=False, feedback=objection.problem)
            return self.replace(history=refused.history).reject(objection.reason)
        feedback = f"{objection.problem}: {objection.text}"
        return self.with_trial(kind, accepted=False, feedback=feedback).reject(objection.reason)

    def reject(self, reason: str) -> Self:
        """Return a copy of the candidate that is rejected for a reason, which is a short English text."""
        return self.replace(rejected=reason)


_NEARLY_THE_SAME = 0.75  # share of the words
_Objection = Callable[[Any], str | Objection | None]


class CandidateStep(Stage[Candidate]):
    """Base class of steps that change or reject a candidate; a rejected candidate passes through unchanged."""

    @property
    def InputType(self) -> type[Candidate]:
        """Type of the input, for schemas."""
        return Candidate

    @property
    def OutputType(self) -> type[Candidate]:
        """Type of the output, for schemas."""
        return Candidate

    def _do(self, state: Candidate, config: RunnableConfig) -> Candidate:
        return state if state.rejected else super()._do(state, config)

    async def _ado(self, state: Candidate, config: RunnableConfig) -> Candidate:
        return state if state.rejected else await super()._ado(state, config)


class AskingStep(CandidateStep):
    """Base class of the steps that ask a writer or critic.

    Attributes:
        model_step: step that sends the request to the writer or critic.
    """

    model_step: JudgeStep

    @property
    def judges(self) -> Sequence[Judge]:
        """List with the writer or critic that the step calls."""
        return self.model_step.judges

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Mapping with the name of this step ("step") and the configuration of its request to a model ("asks").

        A journal (store of finished steps) reuses a stored result only if this configuration is the same.
        """
        return {"step": self.get_name(), "asks": self.model_step.description}

    @classmethod
    def of(cls, prompt: str, judge: JudgeLike, own_prompt: Prompt | None = None, **options: Any) -> Self:
        """Return the step that sends a packaged prompt, or the user's own prompt, to a writer or critic.

        Args:
            prompt: name of the packaged prompt; also names the step, unless `options` holds a `name`.
            judge: writer or critic to call.
            own_prompt: prompt of the user that replaces the packaged prompt; None for the packaged prompt.
            **options: fields of the step class, such as `threshold`.
        """
        return cls(**{"name": prompt, **options}, model_step=prompt_step(prompt, judge, own_prompt))


def ask_step(
    step: JudgeStep, inputs: Mapping[str, Any], language_from: str, objection: _Objection | None = None
) -> Operation[Any]:
    """Send a request to a writer or critic and return its typed answer.

    Args:
        step: prompt, model and answer schema.
        inputs: content of the JSON block of the request.
        language_from: text whose language selects the prompt.
        objection: function that returns the problem with an answer that fits the schema; None if there is no problem.
            After an answer with a problem, or a reply that does not fit the schema, the request is repeated, up to
            `Judge.attempts` calls in all. If the problem remains, an `Objection` is returned, and a str is raised as
            an error.

    Returns:
        The first answer without a problem. If there is none: the `Objection` to the last answer that fits the schema.

    Raises:
        JudgeOutputError: if no answer fits the schema, or the problem with the last one that does is a str.
    """
    last: list[Objection] = []

    def problem(answer: Any) -> str | None:
        found = (objection(answer) if objection else None) or _example_objection(answer, question.request)
        last[:] = [found] if isinstance(found, Objection) else []
        return found.problem if isinstance(found, Objection) else found

    question = step.build_question(inputs, None, language_from=language_from, objection=problem)
    try:
        return (yield step.ask(question))
    except JudgeOutputError:
        if not last:
            raise
        return last[0]


def _example_objection(answer: Any, request: RequestContent) -> Objection | None:
    """Return the objection to a question that is nearly that of an example of the prompt and not about the input."""
    text = getattr(answer, "question", "")
    own, about = words_of(text), content_words(text)
    new = about - content_words(json.dumps(request.inputs, ensure_ascii=False))
    for example in request.prompt.examples if 2 * len(new) > len(about) else ():
        other = words_of(str(example.output.get("question", "")))
        if SequenceMatcher(None, own, other, autojunk=False).ratio() >= _NEARLY_THE_SAME:
            problem = "this is the question of an example, with other words: ask about the input"
            return Objection(Reason.QUESTION_REJECTED, problem, text)
    return None


def prompt_step(prompt: str, judge: JudgeLike, own_prompt: Prompt | None = None) -> JudgeStep:
    """Build the step that sends a packaged prompt to a model and returns the typed answer.

    Args:
        prompt: name of the packaged prompt; also names the step and selects the answer schema.
        judge: writer or critic to call.
        own_prompt: prompt of the user that replaces the text of the packaged one.
    """
    return JudgeStep(own_prompt or prompt, judge, ANSWER_SCHEMAS[prompt], name=prompt)


EMBED = "embed"
"""Name of the step that embeds passages and questions."""
