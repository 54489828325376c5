"""Step: a question to a judge, or a call of a user's chain, with inputs from the sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable, RunnableSequence
from langchain_core.runnables.base import RunnableLike, coerce_to_runnable
from pydantic import BaseModel, InstanceOf, JsonValue, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from langchain_rageval._internal.description import describe
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Sample, without_surrogates
from langchain_rageval.errors import ConfigError, JudgeOutputError
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.judge.panels import map_members
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.models.offline_judge import OfflineAnswer, OfflineJudge
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.prompts.promptset import Prompt, StepPrompts, check_examples
from langchain_rageval.run.requests import Gather, Invoke, Operation, Shared
from langchain_rageval.steps.item_step import background_windows, with_windows
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.votes import AGREEMENT, UNDECIDED, AnswerVotes, Reducer, checked_answer, votes_on


class ChainStep(Stage[State]):
    """Stage that invokes a chain of the user. Built by `Step.from_chain`.

    Metrics of one sample that use the same step invoke its chain once.
    """

    chain: Runnable[Any, Any]
    inputs: Callable[[Sample], Any]
    result_name: str

    def work(self, state: State) -> Operation[State]:
        """Invoke the chain once, and add its output to the state."""
        sample: Sample = state["sample"]
        key = ("chain", id(self.chain), id(self.inputs), id(sample))
        _, output = yield Shared(key, self._invoke(sample))
        return state | {self.result_name: output}

    def _invoke(self, sample: Sample) -> Operation[tuple[Sample, Any]]:
        """Return the output, with the sample, so that the sample's id is not reused while the result is shared."""
        try:
            output = yield Invoke(self.chain, self.inputs(sample))
        except OutputParserException as error:
            raise JudgeOutputError(str(error), self.get_name(), str(error.llm_output or "")) from error
        return sample, output

    @property
    def models(self) -> Sequence[Any]:
        """Language models in the chain. A model that a function creates only when it is called is missing."""
        return list(models_in(self.chain))

    @property
    def report_notes(self) -> Sequence[str]:
        """Notes for the report: one if the chain contains an `OfflineJudge`, else none.

        An `OfflineJudge` is a chat model that answers without a network. It invents the output of the chain.
        """
        invented = any(isinstance(model, OfflineJudge) for model in self.models)
        return [Note("invented-answers", step=self.get_name())] if invented else []

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects its output: "step" (the name), "chain" and "inputs".

        "chain" describes the chain's prompts, models and parsers, "inputs" the function that builds its inputs.
        """
        return {"step": self.get_name(), "chain": describe(self.chain), "inputs": describe(self.inputs)}


def models_in(runnable: Runnable[Any, Any]) -> Iterator[BaseLanguageModel[Any]]:
    """Yield the language models that the graph of a Runnable (`get_graph()`) shows.

    A model that a function creates only when it is called is missing. Yields nothing if there is no graph.
    """
    for inner in inner_models(runnable):
        if isinstance(inner, BaseLanguageModel):
            yield inner
            continue
        try:
            parts = [node.data for node in inner.get_graph().nodes.values()]
        except Exception:  # of a schema that cannot be generated
            continue
        for part in parts:
            if isinstance(part, Runnable) and part is not inner:
                yield from models_in(part)


Inputs = Callable[[Sample], Mapping[str, Any]]
"""Function from a sample to the inputs of a step."""


def inputs_function(step: str, reads: Iterable[str], inputs: Callable[[Sample], Any] | None) -> Callable[[Sample], Any]:
    """Return the function that builds the inputs of a step from a sample.

    Args:
        step: name of the step.
        reads: fields of the sample that are the inputs.
        inputs: function of the user that builds the inputs from the sample, in place of `reads`.

    Raises:
        ConfigError: if both or none of `reads` and `inputs` is given, or a field does not exist.
    """
    fields = sorted(reads) if isinstance(reads, AbstractSet) else [reads] if isinstance(reads, str) else list(reads)
    if bool(fields) == (inputs is not None):
        raise ConfigError(
            f'step {step} takes reads=("question", "answer"), the fields that it sends, or inputs=, a function of the '
            f"sample, got {'both' if fields else 'neither'}"
        )
    if inputs is not None:
        function = inputs.function if isinstance(inputs, NumberedInputs) else inputs
        if not callable(function):
            raise ConfigError(f"inputs of step {step} is a function of the sample, got {type(function).__name__}")
        return inputs
    if unknown := [field for field in fields if field not in Sample.model_fields]:
        raise ConfigError(f"step {step} reads {unknown}, which no sample has; use {', '.join(Sample.model_fields)}")
    return FieldsOf(tuple(fields))


class FieldsOf:
    """Function from a sample to a mapping of some of its fields, which are the inputs of a step.

    Args:
        fields: names of the fields, as the user listed them in `reads` of the step, such as ("question", "answer").
    """

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = fields

    def __call__(self, sample: Sample) -> Mapping[str, Any]:
        """Return the fields of a sample."""
        return {field: getattr(sample, field) for field in self.fields}


class NumberedInputs:
    """Function from a sample to a step's inputs: calls the user's `inputs`, and raises ConfigError if they are invalid.

    Inputs are valid if they are a mapping whose `contexts`, if any, are a list of texts. This function does not number
    the contexts; the step does, when it sends them to the judge.

    Args:
        step: name of the step, for error messages.
        function: the user's `inputs`, an option of `Step`: a function from the sample to a mapping.
    """

    def __init__(self, step: str, function: Inputs) -> None:
        self.step = step
        self.function = function

    def __call__(self, sample: Sample) -> Mapping[str, Any]:
        """Return the inputs for a sample.

        Raises:
            ConfigError: if the function gives no mapping, or contexts that are not a list of texts.
        """
        inputs = self.function(sample)
        if not isinstance(inputs, Mapping):
            raise ConfigError(f"inputs of step {self.step} returned {type(inputs).__name__}: it must return a mapping")
        contexts = inputs.get("contexts")
        are_texts = isinstance(contexts, list | tuple) and all(isinstance(text, str) for text in contexts)
        if contexts is not None and not are_texts:
            raise ConfigError(
                f"inputs of step {self.step} gave contexts that are not a list of texts: they are numbered for the "
                "judge; use another name for other data"
            )
        return inputs


_LANGUAGE_CODE = re.compile("(?:[a-z]{2})?")  # empty for one prompt in all languages
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\W+")


class Step:
    """A question to the judge about a sample, and the class of the answer.

        class Politeness(BaseModel):
            reason: str
            polite: bool

        rate = Step(Politeness, prompts={"en": Prompt(...), "ru": Prompt(...)}, reads=("question", "answer"))

    `rate(judge)` returns the Runnable that asks the judge and adds the answer to the state under `key`. Pass it as the
    `steps` of a `Metric`. The inputs are sent as one JSON object, except `contexts`, a list of str, which is sent as
    numbered sentences. If `contexts` exceeds the judge's `max_context_tokens`, the judge is asked about each part, and
    `windows` combines the answers. Without `windows` only the first part is sent, and a finding says so.

    A judge with `draws`, or a jury, is asked once for each vote, and the votes decide each field separately. Numbers
    are decided by `reducer`. A truth value, label or other value needs a strict majority of the votes; without one, the
    sample is unscored, and findings hold the votes. Texts are from one of the votes. If the class has only fields of
    type str, the judge is asked once.

    Args:
        answer: pydantic class of the answer. Its name is the title of the schema; its docstring is sent to the judge.
            Fields are best ordered as a model should write them, the reason before the verdict.
        prompts: prompts by language, such as `{"en": Prompt(...), "ru": Prompt(...)}`; or one `Prompt`; or the name of
            a packaged prompt. The prompt in the question's language is used, else the English prompt, else the first.
        reads: fields of the sample that are the inputs.
        inputs: function that builds the inputs from the sample, instead of `reads`.
        name: name of the step in traces, errors and prompt sets; by default the name of the class in snake case.
        key: key of the answer in the state; by default the name.
        offline: function from the inputs to an answer, for dry runs and an `OfflineJudge`. If omitted, they invent an
            answer that fits the schema.
        windows: function from the list of answers about the parts of long contexts, in order, to one answer.
        reducer: how votes decide numbers: "median" (the lower one) or "mean"; by default the median of whole numbers
            and the mean of other numbers. "majority" decides numbers by strict majority, like other values. Or a
            function from the list of answers to one answer, which then needs no majority.

    Raises:
        ConfigError: if an option is invalid, or the output of an example does not fit the answer class.
    """

    def __init__(
        self,
        answer: type[BaseModel],
        *,
        prompts: Mapping[str, Prompt] | Prompt | str,
        reads: Iterable[str] = (),
        inputs: Inputs | None = None,
        name: str | None = None,
        key: str | None = None,
        offline: OfflineAnswer | None = None,
        windows: Callable[[Sequence[Any]], Any] | None = None,
        reducer: Reducer | None = None,
    ) -> None:
        if not (windows is None or callable(windows)):
            raise ConfigError(f"windows is a function from the answers about parts of the contexts, got {windows!r}")
        if not (reducer is None or callable(reducer) or reducer in ("majority", "median", "mean")):
            raise ConfigError(f'reducer is "majority", "median", "mean" or a function of the answers, got {reducer!r}')
        if not (isinstance(answer, type) and issubclass(answer, BaseModel)):
            raise ConfigError(f"a step takes the pydantic class of its answer, got {answer!r}")
        self.answer = answer
        self.name = _WORD_START.sub("_", answer.__name__).strip("_").lower() if name is None else name
        self.result_name = self.name if key is None else key  # the value of an attribute `key` would count as a secret
        if not self.name or not self.result_name:
            raise ConfigError(f"name and key of the step for {answer.__name__} must not be empty")
        _check_key(self.name, self.result_name)
        try:
            strict_schema(answer)
        except ValueError as error:
            raise ConfigError(f"step {self.name}: {error}") from None
        self.prompts = _step_prompts(self.name, prompts, answer)
        self.packaged_prompt = prompts if isinstance(prompts, str) else None
        self.inputs = inputs_function(self.name, reads, inputs and NumberedInputs(self.name, inputs))
        self.offline = offline
        self.windows = windows
        self.reducer = reducer

    @property
    def key(self) -> str:
        """Key of the answer in the state."""
        return self.result_name

    def __repr__(self) -> str:
        """Return the name and the answer class as text."""
        return f"Step({self.answer.__name__}, name={self.name!r})"

    def __call__(self, judge: JudgeLike) -> JudgeStep:
        """Return the Runnable from state to state that asks a judge.

        Raises:
            ConfigError: if the step uses the name of a packaged prompt that does not exist.
        """
        prompt: Any = self.prompts or self.packaged_prompt
        judge = map_members(Judge.of(judge), self._with_offline_answer)
        return SampleStep(prompt=prompt, judge=judge, answer=self.answer, name=self.name, definition=self)

    @classmethod
    def from_chain(
        cls,
        chain: RunnableLike[Any, Any],
        *,
        key: str,
        reads: Iterable[str] = (),
        inputs: Callable[[Sample], Any] | None = None,
        name: str | None = None,
    ) -> ChainStep:
        """Return the Runnable that invokes a chain of the user, such as `ChatPromptTemplate | model | parser`.

        The concurrency limit, the retries, the timeout and the budget of a run treat each invocation of the chain as
        one model call. The model calls and tokens of the chain are counted. If the chain's parser rejects a reply, a
        JudgeOutputError is raised; only the chain itself can ask again.

        Args:
            chain: Runnable from a mapping of the inputs, or from the result of `inputs`, to any output.
            key: key of the output in the state.
            reads: fields of the sample that are the inputs.
            inputs: function that builds the input of the chain from the sample, in place of `reads`.
            name: name of the step in traces and errors; by default the key.

        Raises:
            ConfigError: if an option is invalid.
        """
        name = key if name is None else name
        if not isinstance(key, str) or not key or not name:
            raise ConfigError(f"key and name of a chain's step must not be empty, got {key!r} and {name!r}")
        _check_key(name, key)
        try:
            runnable: Runnable[Any, Any] = coerce_to_runnable(chain)
        except TypeError:
            raise ConfigError(f"step {name} takes a Runnable or a function, got {type(chain).__name__}") from None
        function = inputs_function(name, reads, inputs)
        return ChainStep(chain=runnable, inputs=function, result_name=key, name=name)

    def _with_offline_answer(self, judge: Judge) -> Judge:
        if self.offline is None or not isinstance(judge.model, OfflineJudge):
            return judge
        answers = {**(judge.model.answers or {}), self.answer.__name__: self.offline}
        return replace(judge, model=judge.model.model_copy(update={"answers": answers}))


class SampleStep(JudgeStep):
    """Step that asks the judge the question of a `Step` about the sample in the state."""

    definition: InstanceOf[Step]

    def work(self, state: State) -> Operation[State]:
        """Ask the judge once per vote, combine the votes to one answer, and add the answer to the state.

        If the votes leave a field undecided (no majority), the answer is None, and findings hold the votes.
        """
        sample: Sample = state["sample"]
        inputs = dict(self.definition.inputs(sample))
        contexts = inputs.pop("contexts", None)
        shown = NumberedContexts.of(contexts or [])
        voters = voters_of(self.judge) if votes_on(self.answer) else voters_of(self.judge)[:1]
        answers: list[BaseModel] = yield Gather([self._vote(voter, sample, inputs, shown) for voter in voters])
        if self.definition.windows is None:
            state = with_windows(state, shown, self.judge, only_first=True)
        if len(voters) == 1:
            return state | {self.definition.key: answers[0]}
        votes = AnswerVotes(self.definition.reducer)
        answer = votes.answer(answers)
        findings = list(votes.findings(voters))
        if votes.is_undecided:
            return state | {self.definition.key: None, UNDECIDED: [*state.get(UNDECIDED, ()), *findings]}
        return state | {self.definition.key: answer, AGREEMENT: [*state.get(AGREEMENT, ()), *findings]}

    def _vote(
        self, voter: Voter, sample: Sample, inputs: Mapping[str, Any], shown: NumberedContexts
    ) -> Operation[BaseModel]:
        join, language = self.definition.windows, sample.language_text
        parts = background_windows(shown, voter.judge)[: None if join else 1]
        requests = [self._answer(inputs, part, voter, language_from=language) for part in parts]
        answers: list[BaseModel] = yield Gather(requests)
        if join is None or len(answers) == 1:
            return answers[0]
        return checked_answer(join(answers), self.answer, "windows")

    def judged_by(self, judge: Judge) -> JudgeStep:
        """Return a copy of the step that asks another judge."""
        return self.definition(judge)

    @property
    def shows_question(self) -> bool:
        """True if the judge reads the question without its history; the question may then be rewritten beforehand.

        Also True if a user's function builds the inputs, because its choice of fields is not known.
        """
        inputs = self.definition.inputs
        return not isinstance(inputs, FieldsOf) or ("question" in inputs.fields and "history" not in inputs.fields)

    @property
    def offline_answer(self) -> OfflineAnswer | None:
        """Function that answers without a model: `offline` of the `Step`; None if it is omitted."""
        return self.definition.offline

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its answers: the entries that all steps have, "inputs" and "answer".

        "inputs" describes the function that builds the inputs, "answer" the answer class.
        """
        own = {"inputs": describe(self.definition.inputs), "answer": describe(self.answer)}
        if self.definition.windows is not None:
            own["windows"] = describe(self.definition.windows)
        if len(voters_of(self.judge)) > 1:
            own["reducer"] = describe(self.definition.reducer or "by field and place")
        return {**super().instrument, **own}


def keep_answers(steps: Sequence[Runnable[Any, Any]], state: State) -> dict[str, Any]:
    """Return the answers of the user's steps as JSON values, by the keys that the answers have in the state.

    Returns `{}` if the state lacks one of the answers, if an answer is invalid, or if a step is not the user's.
    """
    kept = {}
    for key, adapter in _answer_types(steps).items():
        try:
            answer = adapter.validate_python(state[key])
            kept[key] = without_surrogates(adapter.dump_python(answer, mode="json"))
        except (KeyError, ValueError, PydanticSerializationError):
            return {}
    return kept


def restore_answers(steps: Sequence[Runnable[Any, Any]], answers: Mapping[str, Any]) -> State | None:
    """Return the answers of the user's steps as part of a state, read from their JSON values.

    Args:
        steps: the user's steps.
        answers: JSON values of their answers by key, as `keep_answers` returned them and a score stores them.

    Returns:
        The answer of each step by its key, without `sample`. None if an answer is missing or invalid, or if one of the
        steps is not the user's.
    """
    adapters = _answer_types(steps)
    if not adapters or not adapters.keys() <= answers.keys():
        return None
    try:
        return {key: adapter.validate_python(answers[key]) for key, adapter in adapters.items()}
    except ValidationError:
        return None


def _answer_types(steps: Sequence[Runnable[Any, Any]]) -> dict[str, TypeAdapter[Any]]:
    """Return the type of each answer by its key; none if another Runnable is among the steps."""
    types: dict[str, Any] = {}
    for step in steps:
        if isinstance(step, SampleStep):
            types[step.definition.key] = step.answer
        elif isinstance(step, ChainStep):
            last = step.chain.last if isinstance(step.chain, RunnableSequence) else step.chain
            tools = getattr(last, "tools", None) or [None]  # of the parser that with_structured_output appends
            parsed = getattr(last, "pydantic_object", None) or tools[0]
            types[step.result_name] = (
                parsed if isinstance(parsed, type) and issubclass(parsed, BaseModel) else JsonValue
            )
        else:
            return {}
    return {key: TypeAdapter(answer_type) for key, answer_type in types.items()}


def own_names(stage: Stage[Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the names of a user's step, by which a metric finds steps with equal names; none for a packaged step.

    Yields:
        A tuple (what, name, owner). `what` is "key" for the key of the step's result in the state, and "name" for the
        name of a step that asks a judge, by which prompt sets find its prompts. A chain has only a key. `owner` is the
        `Step` or the chain that has the name.
    """
    if isinstance(stage, ChainStep):
        yield "key", stage.result_name, stage.chain
    if isinstance(stage, SampleStep):
        yield "key", stage.definition.key, stage.definition
        yield "name", stage.definition.name, stage.definition


def _check_key(name: str, key: str) -> None:
    if key == "sample":
        raise ConfigError(f"key of step {name} must not be 'sample': the state holds the sample under it")


def _step_prompts(
    name: str, prompts: Mapping[str, Prompt] | Prompt | str, answer: type[BaseModel]
) -> StepPrompts | None:
    expected = f'prompts of step {name} is a Prompt, {{"en": Prompt(...), ...}}, or the name of a packaged prompt'
    if isinstance(prompts, str):
        if not prompts.isidentifier():
            raise ConfigError(f"{expected}, got {prompts!r}: write Prompt(instruction={prompts!r})")
        return None
    by_language = {"": prompts} if isinstance(prompts, Prompt) else prompts
    if not isinstance(by_language, Mapping) or not by_language:
        raise ConfigError(f"{expected}, got {prompts!r}")
    try:
        own = StepPrompts(step=name, prompts=dict(by_language))
    except ValidationError:
        kinds = ", ".join(dict.fromkeys(type(prompt).__name__ for prompt in by_language.values()))
        raise ConfigError(f"{expected}, got a mapping to {kinds}") from None
    if wrong := [code for code in own.prompts if not _LANGUAGE_CODE.fullmatch(code)]:
        raise ConfigError(f"prompts of step {name}: {wrong[0]!r} is no ISO 639-1 code of a language, such as 'ru'")
    for prompt in own.prompts.values():
        check_examples(name, prompt, answer)
    return own
