"""Judge: a model that gives verdicts on texts, with the options of its requests and votes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.description import NotDescribable, describe
from langchain_rageval.errors import ConfigError, check_choice
from langchain_rageval.judge.endpoint import Endpoint, EndpointCapabilities, EndpointProbe, RequestMode, model_identity
from langchain_rageval.judge.ladder import Mode, OwnRung, rung_name
from langchain_rageval.prompts.layout import Layout
from langchain_rageval.prompts.promptset import PromptSet, languages
from langchain_rageval.text.language import detect_language

_LOG = logging.getLogger("langchain_rageval")


@dataclass(frozen=True, repr=False, eq=False)
class Judge:
    """Model that states facts about texts, with the options of its requests. The model itself is never changed.

    Args:
        model: a chat model, or any Runnable or function from messages to a message or a text.
        language: language of the prompts, such as "ru". "auto" detects the language of each sample's question, and uses
            English if there are no prompts in that language.
        prompts: prompts to use instead of the package's prompts.
        mode: how structured output is requested: "json_schema", "function_calling", "json_mode" or "prompt" (the schema
            is put into the prompt). "auto" starts with the best mode known for the model's class, and falls back to the
            next mode if the endpoint rejects it. A function defines a mode of your own: it takes the JSON schema of the
            answer and returns call options, such as `lambda schema: {"extra_body": {"guided_json": schema}}`. The
            prompt then contains the schema, too.
        attempts: maximum number of model calls for one question. The question is repeated if the reply is invalid.
        draws: number of times that each verdict is requested, an odd number. The majority decides.
        layout: order of the parts of a request: "contexts_first" (the meaning of "auto"), "instruction_first" or
            "shared_instructions". "shared_instructions" puts the instructions of four frequent steps (questions that
            metrics ask, such as `verify_statements`) into the system message of each request. It suits a capable model
            with a large context window on a server that caches prompt prefixes: the server processes the instructions
            once per run and the contexts once per sample. Each request is longer: it asks the question of one step, but
            also contains the instructions of the three or four others.
        max_statements: maximum number of statements in one request. More statements are split into several requests.
        max_context_tokens: maximum number of context tokens (characters / 4) in one request. Longer contexts are split
            between sentences into windows. A statement whose support spans two windows is then not recognised. Texts
            from which statements are extracted are split in the same way.
        max_concurrency: maximum number of calls to this model at a time, within the limit of the run. None, the
            default, means one call for a model that runs in this process, such as ChatLlamaCpp, HuggingFacePipeline or
            MLXPipeline, and no limit for other models.
        probabilities: True to request token log-probabilities, from which each verdict and grade gets its probability.
            Supported for ChatOpenAI, also with vLLM or llama-server, for ChatLlamaCpp with `logits_all=True`, and for
            other clients that return them. If the model returns none, the verdicts have no probabilities, and the
            report notes it.
        grammar: True if the server builds a grammar from the schema of each request in milliseconds, as llama.cpp and
            vLLM do. The schema then allows only the possible answers of the request. False for other servers. None, the
            default, recognises these servers by their replies.
        probe: an `EndpointProbe`, or the path of a file that `rageval probe` wrote, so that no request is spent on
            finding the capabilities again. Options that you pass, such as `mode`, take precedence.
        version: identifies a model whose configuration cannot be read, such as a function that uses an open client.
            Change the version when the model changes. Without a version, the scores of such a model are not journalled.

    Raises:
        ConfigError: if an option is out of range.
    """

    model: Runnable[Any, Any]
    language: str = field(default="auto", kw_only=True)
    prompts: PromptSet | None = field(default=None, kw_only=True)
    mode: Mode | OwnRung = field(default="auto", kw_only=True)
    attempts: int = field(default=3, kw_only=True)
    draws: int = field(default=1, kw_only=True)
    layout: Layout | Literal["auto"] = field(default="auto", kw_only=True)
    max_statements: int = field(default=10, kw_only=True)
    max_context_tokens: int | None = field(default=None, kw_only=True)
    max_concurrency: int | None = field(default=None, kw_only=True)
    probabilities: bool = field(default=False, kw_only=True)
    grammar: bool | None = field(default=None, kw_only=True)
    probe: EndpointProbe | str | Path | None = field(default=None, kw_only=True)
    version: str | None = field(default=None, kw_only=True)
    _endpoint: Endpoint = field(init=False)

    def __post_init__(self) -> None:
        """Validate the options; a function becomes a RunnableLambda."""
        object.__setattr__(self, "model", _runnable(self.model))
        if not isinstance(self.prompts, PromptSet | None):
            kind = type(self.prompts).__name__
            raise ConfigError(f"prompts must be a PromptSet, such as PromptSet.load(directory), got {kind}")
        if self.prompts is None and self.language not in ("auto", *languages()):
            known = ", ".join(["auto", *sorted(languages())])
            problem = f"language must be one of {known}, got {self.language!r}"
            raise ConfigError(f"{problem}; for another language, pass prompts=")
        _check_options(self)
        if not isinstance(self.version, str | None):
            raise ConfigError(f"version must be a text, got {type(self.version).__name__}")
        if self.draws % 2 == 0:
            raise ConfigError(f"draws must be an odd number, so that there is a majority, got {self.draws}")
        if not isinstance(self.probabilities, bool):
            raise ConfigError(f"probabilities must be True or False, got {self.probabilities!r}")
        if self.grammar not in (None, True, False):
            raise ConfigError(f"grammar must be True, False or None, got {self.grammar!r}")
        found, limits = EndpointCapabilities(), (self.max_concurrency, self.probabilities, self.grammar)
        object.__setattr__(self, "_endpoint", Endpoint(self.model, self.mode, self.layout, found, *limits))
        if self.probe is None:
            return
        probe = self.probe if isinstance(self.probe, EndpointProbe) else EndpointProbe.load(self.probe)
        found.probed, found.refuses_log_probabilities = True, not probe.log_probabilities
        found.refuses_own_schemas = probe.mode == "json_schema" and not probe.narrowed
        found.grammar = probe.grammar
        if self.mode in ("auto", probe.mode):
            found.mode = RequestMode(probe.mode) if probe.mode in self._endpoint.rungs else None

    @classmethod
    def of(cls, judge: JudgeLike) -> Judge:
        """Return a Judge unchanged; wrap a model, a Runnable or a function from messages to a text into a Judge.

        The same object always gives the same Judge, so that all metrics share the known capabilities of its endpoint.
        """
        if isinstance(judge, Judge):
            return judge
        if (wrapped := _WRAPPED.get(id(judge))) is None:
            wrapped = _WRAPPED[id(judge)] = cls(judge)  # type: ignore[arg-type]
        return wrapped

    def __repr__(self) -> str:
        """Return the judge as text: its model and its options, without secrets."""
        names = (*_OPTIONS, *(name for name in ("probabilities", "version") if getattr(self, name)))
        values = {name: getattr(self, name) for name in names} | {"mode": rung_name(self.mode)}
        options = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"Judge({self.identity}, {options})"

    @cached_property
    def identity(self) -> str:
        """Class, name and settings of the judge's model as text, without secrets."""
        return model_identity(self.model)

    @cached_property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this judge that affects its answers: model and options, as JSON-like data.

        The configuration identifies the judge in reports and journals.

        Raises:
            NotDescribable: if the model cannot be identified and the judge has no version.
        """
        options = {name: getattr(self, name) for name in _OPTIONS}
        if not isinstance(self.mode, str):
            options["mode"] = describe(self.mode)
        if self.probabilities:
            options["probabilities"] = True
        if isinstance(self._model_description, NotDescribable):
            raise NotDescribable(str(self._model_description))
        return {"model": self._model_description, **options, "layout": self._endpoint.layout}

    def update_instrument(self) -> None:
        """Discard the cached `instrument` (configuration that affects answers); its next use computes it again.

        A run calls this method at its start, because the user may have changed the model.
        """
        for name in ("identity", "instrument", "_fingerprint_text", "_model_description"):
            vars(self).pop(name, None)

    @property
    def members(self) -> tuple[Judge, ...]:
        """Judges that vote on verdicts: the members of a `Jury`; for any other judge, only the judge itself.

        The first member also answers all questions that are not put to a vote.
        """
        return (self,)

    @property
    def asked(self) -> tuple[Judge, ...]:
        """Judges whose models are called: those inside a `Jury` or `Cascade`; for any other judge, the judge itself."""
        return (self,)

    def prompt_set(self, text: str) -> PromptSet:
        """Return the prompts to use for a text: the user's prompts, or the package's prompts in the text's language."""
        return PromptSet.default(prompt_language(self, text)) if self.prompts is None else self.prompts

    @cached_property
    def _fingerprint_text(self) -> str:
        """The `instrument` (configuration that affects answers) as text, equal for judges with equal settings."""
        try:
            return repr(self.instrument)
        except NotDescribable:
            return f"{id(self.model)} {self!r}"

    @cached_property
    def _model_description(self) -> Any:
        """Description of the model; of one that cannot be described, its class and the version, or the error."""
        try:
            description = describe(self.model)
        except NotDescribable as error:
            if self.version is None:
                model = type(self.model).__name__
                remedy = 'set Judge(model, version="1"), and change it with the model'
                return NotDescribable(f"the judge's model {model} cannot be identified ({error}): {remedy}")
            return {"class": type(self.model).__name__, "version": self.version}
        return description if self.version is None else {"configuration": description, "version": self.version}


JudgeLike = Judge | Runnable[Any, Any] | Callable[[list[BaseMessage]], Any]

# By id; each Judge keeps its model alive, so the id is not reused while the entry exists.
_WRAPPED: WeakValueDictionary[int, Judge] = WeakValueDictionary()

_OPTIONS = ("language", "mode", "attempts", "draws", "layout", "max_statements", "max_context_tokens")


def prompt_language(judge: Judge, text: str) -> str:
    """Return the language of the prompts that a judge uses for a text.

    This is the language of the user's prompts. Without prompts of the user, it is the option `language`, or, with
    "auto", the language of the text.
    """
    if judge.prompts is not None:
        return judge.prompts.common.language
    return detect_language(text) if judge.language == "auto" else judge.language


def in_language(judge: Judge, language: str) -> Judge:
    """Return a copy of a judge with prompts in another language, sharing its endpoint.

    A judge with prompts of the user is returned unchanged.
    """
    if judge.prompts is not None or judge.language == language:
        return judge
    changed = replace(judge, language=language)
    object.__setattr__(changed, "_endpoint", judge._endpoint)
    return changed


def with_probabilities(judge: Judge) -> Judge:
    """Return a copy of a judge that requests token log-probabilities; the judge itself if it already does.

    The copy shares the judge's record of the features that the endpoint supports, and its limit of concurrent calls.
    """
    if judge.probabilities:
        return judge
    changed = replace(judge, probabilities=True)
    changed._endpoint.capabilities = judge._endpoint.capabilities
    changed._endpoint._own_gate = judge._endpoint._own_gate
    return changed


def _runnable(model: Any) -> Runnable[Any, Any]:
    if callable(model) and not isinstance(model, Runnable | type):
        return RunnableLambda(model)
    if not isinstance(model, Runnable):
        by_name = f"; load_judge({model!r}) loads one by its name" if isinstance(model, str) else ""
        raise ConfigError(f"a judge is a chat model or another Runnable, got {type(model).__name__}{by_name}")
    return model


def _check_options(judge: Judge) -> None:
    if judge.layout == "handbook":  # type: ignore[comparison-overlap]  # its name in 0.1
        _LOG.warning("layout='handbook' is now layout='shared_instructions'")
        object.__setattr__(judge, "layout", "shared_instructions")
    for option, choices in (("mode", get_args(Mode)), ("layout", ("auto", *get_args(Layout)))):
        if not (option == "mode" and callable(judge.mode)):
            check_choice(option, getattr(judge, option), choices)
    for option in ("attempts", "max_statements", "draws", "max_context_tokens", "max_concurrency"):
        value = getattr(judge, option)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not (is_number and value >= 1) and not (value is None and option.startswith("max_c")):
            raise ConfigError(f"{option} must be a whole number of at least 1, got {value!r}")


@dataclass(frozen=True)
class Voter:
    """Vote on a verdict: the answer of a judge to one draw (repetition of the request).

    Attributes:
        judge: the judge that votes.
        draw: number of the draw, from 0. Later draws of a judge repeat the same request and bypass the model's cache.
    """

    judge: Judge
    draw: int


def voters_of(judge: Judge) -> list[Voter]:
    """Return the votes that decide a verdict by majority: `draws` votes of each jury member, an odd number in all.

    A judge that is a member of the jury several times gets new draws for each membership.
    """
    members = judge.members
    if len(members) == 1:
        return [Voter(members[0], draw) for draw in range(members[0].draws)]
    voters, seats = [], Counter[tuple[int, str]]()
    for member in members:
        seat = (id(member.model), member._fingerprint_text)
        voters += [Voter(member, seats[seat] + draw) for draw in range(member.draws)]
        seats[seat] += member.draws
    return voters
