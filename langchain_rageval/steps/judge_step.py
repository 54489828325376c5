"""JudgeStep: base class of the steps that ask a judge a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, InstanceOf, ValidationError

from langchain_rageval._internal.cached import locked_cache
from langchain_rageval._internal.description import digest_of
from langchain_rageval.data.notes import Note
from langchain_rageval.errors import config_error_of
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, prompt_language
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.judge.panels import with_fresh_endpoint
from langchain_rageval.judge.parser import StrictJsonOutputParser, strict_schema
from langchain_rageval.models.offline_judge import OfflineAnswer, OfflineJudge
from langchain_rageval.prompts.answer_schemas import AnswerLimits
from langchain_rageval.prompts.layout import NumberedContexts, RequestContent
from langchain_rageval.prompts.promptset import Prompt, StepPrompts, packaged_fingerprint
from langchain_rageval.run.requests import Operation, Shared
from langchain_rageval.steps.stage import Stage, State

_FEWEST_ITEMS = 10
_CHARACTERS_PER_ITEM = 3  # a list of short Chinese words; other texts need more


class JudgeStep(Stage[State]):
    """A Runnable that asks the judge a question and adds the typed answer to the state; base class of all such steps.

    The base class sends its whole input: `contexts` as numbered sentences and all other keys as one JSON object. It
    adds the answer under the step's name. The steps of the metrics are subclasses whose `work` selects what is sent.

    Args:
        prompt: name of a packaged prompt, or a `Prompt`, or `StepPrompts` in several languages.
        judge: judge to ask, or a chat model.
        answer: pydantic class of the answer; its name is the title of the schema.
        name: name of the step in traces and errors; by default the name of the prompt or of the answer class.

    Raises:
        ConfigError: if there is no prompt of that name, or `answer` is not a pydantic class.
    """

    prompt: str | Prompt | StepPrompts
    judge: InstanceOf[Judge]
    answer: type[BaseModel]

    def __init__(
        self,
        prompt: str | Prompt | StepPrompts,
        judge: JudgeLike,
        answer: type[BaseModel],
        *,
        name: str | None = None,
        **more: Any,
    ) -> None:
        name = name or (prompt if isinstance(prompt, str) else getattr(answer, "__name__", "step"))
        judge = Judge.of(judge)
        if isinstance(prompt, str):
            for member in judge.members:
                member.prompt_set("").get(prompt)
        fields: dict[str, Any] = {"prompt": prompt, "judge": judge, "answer": answer, "name": name, **more}
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise config_error_of(f"step {name!r}", error) from None

    @property
    def judges(self) -> Sequence[Judge]:
        """Judges whose models the step calls: the members of a jury, both judges of a cascade, or the judge itself."""
        return self.judge.asked

    @property
    def offline_answer(self) -> OfflineAnswer | None:
        """Function from a step's inputs to its answer, for dry runs and an OfflineJudge; None if the user gave none."""
        return None

    @property
    def report_notes(self) -> Sequence[str]:
        """Notes for the report: one if an `OfflineJudge` invents the answers of this step, else none.

        An `OfflineJudge` answers by rules, without a network. It invents an answer, which fits the schema but has no
        meaning, if neither the package nor the user gave a rule for the answer class.
        """
        models = [inner for judge in self.judges for inner in inner_models(judge.model)]
        if not any(isinstance(model, OfflineJudge) and model.invents(self.answer) for model in models):
            return ()
        return [Note("invented-answers-of-step", step=self.get_name())]

    def with_fresh_capabilities(self) -> Self:
        """Return a copy of the step whose judge detects again which features its endpoint supports."""
        return self.model_copy(update={"judge": with_fresh_endpoint(self.judge)})

    def judged_by(self, judge: Judge) -> JudgeStep:
        """Return a copy of the step that asks another judge."""
        return self.model_copy(update={"judge": judge})

    def work(self, state: State) -> Operation[State]:
        """Ask the judge one question about the whole state, and return the state with the answer added."""
        inputs = {name: value for name, value in state.items() if name != "contexts"}
        contexts = NumberedContexts.of(state["contexts"]) if "contexts" in state else None
        answer = yield from self._answer(inputs, contexts, language_from=str(state.get("question", "")))
        return state | {self.get_name(): answer}

    def build_question(
        self,
        inputs: Mapping[str, Any],
        contexts: NumberedContexts | None,
        *,
        language_from: str,
        judge: Judge | None = None,
        objection: Callable[[Any], str | None] = lambda _answer: None,
        limits: AnswerLimits | None = None,
    ) -> JudgeQuestion[Any]:
        """Return a question to the judge about some inputs. Pass it to `ask`.

        Args:
            inputs: content of the JSON object that is sent.
            contexts: numbered contexts; None to send none.
            language_from: text that determines the language of the prompt.
            judge: judge whose prompts are used; by default the step's judge. Of a jury it is the first judge, who
                answers the questions that are not put to the vote.
            objection: function from a parsed answer to its problem, or to None. If there is a problem, the judge is
                asked again.
            limits: values that fields of the answer can have, and maximum lengths of its lists. Servers that build a
                grammar for each request get them in the JSON schema; other servers get the schema of the answer class.
                None for no limits.
        """
        judge = judge or self.judge.members[0]
        prompts = judge.prompt_set(language_from)
        if isinstance(self.prompt, str):
            prompt = prompts.get(self.prompt)
        elif isinstance(self.prompt, Prompt):
            prompt = self.prompt
        else:
            language = prompt_language(judge, language_from)
            prompt = self.prompt.select(prompts, chosen=judge.prompts is not None, language=language)
        parser, schema = _parser_and_schema(self.answer)
        request = RequestContent(
            self.get_name(), prompts, prompt, inputs, contexts, schema, offline=self.offline_answer, limits=limits
        )
        return JudgeQuestion(request, parser, objection)

    def ask(self, question: JudgeQuestion[Any], voter: Voter | None = None) -> Shared:
        """Return a request that asks a judge a question. This method itself sends nothing.

        The method `work` of a step yields the request to the run. The run sends it and passes the parsed answer back to
        `work`. In one run, equal questions are asked only once.

        Args:
            question: question from `build_question`.
            voter: judge and draw (index of a repeated request) of a vote; by default the first draw of the first judge.
        """
        judge, draw = (voter.judge, voter.draw) if voter else (self.judge.members[0], 0)
        return shared_question(judge, question, draw, ask_judge(judge, question, Attempts(judge.attempts), draw))

    def _answer(
        self, inputs: Mapping[str, Any], contexts: NumberedContexts | None, voter: Voter | None = None, **options: Any
    ) -> Operation[Any]:
        """Return the answer to a question about some inputs; the options are those of `build_question`."""
        question = self.build_question(inputs, contexts, judge=voter.judge if voter else None, **options)
        return (yield self.ask(question, voter))

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its answers: judge, prompts, schema and options.

        Reports and journals identify the step by it.
        """
        own = None if isinstance(self.prompt, str) else self.prompt
        packaged = packaged_fingerprint(None if own else str(self.prompt))
        prompts = [judge.prompts.fingerprint if judge.prompts else packaged for judge in self.judges]
        return {
            "step": self.get_name(),
            "judge": self.judge.instrument,
            "prompts": prompts,
            "own_prompt": own and digest_of(own.model_dump(mode="json")),
            "schema": digest_of(_parser_and_schema(self.answer)[1]),
        }


def most_items(text: str) -> int:
    """Return how many statements or entities a text can hold: one for every three characters, and at least ten.

    The limit protects against a judge in a repetition loop, which lists thousands of items.
    """
    return max(_FEWEST_ITEMS, len(text) // _CHARACTERS_PER_ITEM)


def list_length(text: str) -> int:
    """Return the maximum number of items that the schema of a request lets a judge list about a text.

    The number is the first of 10, 20, 40, 80 and so on that is not below `most_items(text)`, a third of the characters.
    Texts of similar lengths then have the same schema, which servers cache.
    """
    most, limit = most_items(text), _FEWEST_ITEMS
    while limit < most:
        limit *= 2
    return limit


@locked_cache
def _parser_and_schema(answer: type[BaseModel]) -> tuple[StrictJsonOutputParser[Any], Mapping[str, Any]]:
    """Return the parser and the JSON schema of an answer class. Cached: pydantic needs a millisecond for a schema."""
    return StrictJsonOutputParser(answer), strict_schema(answer)
