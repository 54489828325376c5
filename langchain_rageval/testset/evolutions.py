"""Evolutions: Runnables that make a generated question harder, or more like the question of a real user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from math import isfinite
from random import Random
from typing import Any, ClassVar

from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence
from langchain_core.runnables.graph import Graph
from pydantic import ConfigDict

from langchain_rageval.errors import ConfigError, check_choice, did_you_mean
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.requests import InvokeChild, Operation
from langchain_rageval.run.run import Traced, ainvoke_child, invoke_child
from langchain_rageval.testset.candidate import SIMPLE, Candidate, CandidateStep, Reason
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolve import LENGTHS, MULTI_CONTEXT, THEMATIC, Kind, evolve
from langchain_rageval.testset.filters import QuestionFilter, evolution_filter, question_filter
from langchain_rageval.testset.user_step import UserStep, inner_runnable, user_step
from langchain_rageval.testset.writing import compress

TRIES = 2
"""Number of times that a question is evolved until the filters accept it."""


class EvolutionBranch(CandidateStep):
    """Step that evolves a question and filters the result; it tries a second time if the filters reject the first.

    If the evolution makes the question deeper or broader, the second try starts from the question of the first try,
    because the same request would return the same question. The filters compare the question of either try with the
    parent, which is the question before the first try. If the second try is rejected too, the candidate is rejected.

    If the evolution only rephrases the question, the second try starts again from the parent, and the writer reads the
    feedback of the critic. The question filter does not rewrite a rephrased question, because that would remove the
    style.

    Attributes:
        parts: step that evolves the question, then the filters.
        asks_more: True if the question must become deeper or broader, False if it is only rephrased.
    """

    parts: tuple[CandidateStep, ...]
    asks_more: bool = True

    @property
    def judges(self) -> Sequence[Judge]:
        """Writers and critics that the evolution and its filters call."""
        return [judge for part in self.parts for judge in part.judges]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Mapping with the name of this branch ("step") and the configurations of its steps ("parts").

        A journal (store of finished steps) reuses a stored result only if this configuration is the same.
        """
        return {"step": self.get_name(), "parts": [part.description for part in self.parts]}

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Return the graph of the evolution and its filters, in sequence."""
        return RunnableSequence(*self.parts).get_graph(config)

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Rewrite the question by the evolution and filter the result; if the result is rejected, try once more.

        A try takes four calls: evolve, compress, review, compare. If `multi_context` adds passages that share an entity
        with the first passage, the four calls are: extract the entities, evolve, compress, review. If the evolution
        only rephrases, a try takes two calls: evolve, review.
        """
        parent = state
        evolve_question, *filters = self.parts
        for _ in range(TRIES):
            state = yield InvokeChild(evolve_question, state)
            state = state.replace(parent=parent.question)
            for step in filters:
                state = state if state.rejected else (yield InvokeChild(step, state))
            if state.rejected != (Reason.NOT_EVOLVED if self.asks_more else Reason.QUESTION_REJECTED):
                return state
            reason, history = state.rejected, state.history
            again = state.replace(rejected=None, evolution=parent.evolution)
            state = again if self.asks_more else parent.replace(history=history)
        return state.reject(reason)


class Composable:
    """Mixin that lets `|` join two evolutions into a sequence, such as `reasoning | conditional`.

    A sequence is a valid key of a generator's `distribution` (mapping from evolutions to their shares of the rows).
    """

    def __or__(self, other: Any) -> Any:
        """Return the sequence of this evolution and another evolution, a Runnable or a function."""
        return compose([self, other])

    def __ror__(self, other: Any) -> Any:
        """Return the sequence of a function and this evolution."""
        return compose([other, self])


class Evolution(Composable, Traced[Candidate, Candidate]):
    """Runnable that rewrites a question; input and output are a candidate (question in progress).

    `reasoning | conditional` applies both evolutions in turn. `reasoning | my_runnable` continues with a Runnable or
    function of yours. A `TestsetGenerator` supplies the models. Outside of a generator, pass them in the mapping
    `config["configurable"]`. Its key `writer` holds the model that rewrites. The key `critic` is optional and holds a
    model that reviews the new question and may reject it; without a critic, there is no review. The key `docstore`,
    required for `multi_context` and `thematic`, holds the source of near passages (with similar content) and of
    neighbouring passages (before or after a passage in its document). Without a config, call the evolution with the
    models: `reasoning(writer)` returns the step that rewrites with this model.

    Attributes:
        kind: what the evolution does; None for the evolution `simple`, which returns the candidate unchanged.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    in_traces: ClassVar[bool] = False

    kind: Kind | None = None

    def __repr__(self) -> str:
        """Return the name of the evolution."""
        return self.get_name()

    __str__ = __repr__

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Tuple with the `Kind` (settings) of this evolution; empty for `simple`."""
        return () if self.kind is None else (self.kind,)

    def __call__(
        self, writer: JudgeLike, docstore: Docstore | None = None, *, critic: JudgeLike | None = None
    ) -> CandidateStep:
        """Return the step that applies this evolution with the given models.

        Args:
            writer: model that rewrites the question; one call.
            docstore: source of near passages (with similar content) and of neighbouring passages (before or after a
                passage in its document); required for `multi_context` and `thematic`.
            critic: model that reviews the new question and compares it with the old one; None for no filters.

        Raises:
            ConfigError: if the evolution is `simple`, or needs a docstore and there is none.
        """
        if self.kind is None:
            raise ConfigError("simple leaves the question as it is, so it has no step: call another evolution")
        return self.with_services({"writer": writer, "docstore": docstore, "critic": critic})

    def with_services(self, services: Mapping[str, Any]) -> CandidateStep:
        """Return the step that applies this evolution with the models, docstore and filters of a generator.

        With a critic, `compress`, `question_filter` and `evolution_filter` follow. An evolution that only rephrases the
        question (`kind.asks_more` is False) is followed by `question_filter` alone, without its rewrites.

        Args:
            services: mapping with the key `writer` and optional keys: `critic`, `docstore`, and own steps under
                `compress`, `question_filter` and `evolution_filter`.

        Raises:
            ConfigError: if there is no writer, or no docstore for an evolution that adds a passage.
        """
        writer, critic, docstore = (services.get(name) for name in ("writer", "critic", "docstore"))
        if self.kind is None or writer is None:
            raise ConfigError(
                f"{self.get_name()} needs a writer: bind one with {self.get_name()}(writer), or pass the config "
                '{"configurable": {"writer": model}}; a TestsetGenerator does so'
            )
        kind, first = self.kind, evolve(self.kind, writer, docstore)
        if critic is None:
            return first
        review = services.get("question_filter") or question_filter(critic, writer, docstore)
        if not kind.asks_more:
            if isinstance(review, QuestionFilter):
                review = review.model_copy(update={"rewrite_step": None})
            return EvolutionBranch(name=kind.name, parts=(first, review), asks_more=False)
        shorten = services.get("compress") or compress(writer)
        compare = services.get("evolution_filter") or evolution_filter(critic)
        return EvolutionBranch(name=kind.name, parts=(first, shorten, review, compare))

    def _do(self, input: Candidate, config: RunnableConfig) -> Candidate:
        if input.rejected or self.kind is None:
            return input
        return invoke_child(self.with_services(config.get("configurable", {})), input, config)

    async def _ado(self, input: Candidate, config: RunnableConfig) -> Candidate:
        if input.rejected or self.kind is None:
            return input
        return await ainvoke_child(self.with_services(config.get("configurable", {})), input, config)


class EvolutionSequence(Composable, RunnableSequence[Candidate, Candidate]):
    """Sequence of evolutions and user steps, such as `reasoning | conditional`.

    A sequence is hashable, because it may be a key of a generator's `distribution` (mapping of evolutions to shares).
    """

    def __init__(self, *steps: Any, name: str | None = None) -> None:
        super().__init__(*steps, name=name)

    def __hash__(self) -> int:
        """Return a hash of the name."""
        return hash(self.name)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The `Kind` (settings) of each evolution in the sequence, in order; user steps have none."""
        return tuple(kind for part in self.steps for kind in kinds_of(part))

    def __call__(
        self, writer: JudgeLike, docstore: Docstore | None = None, *, critic: JudgeLike | None = None
    ) -> Runnable[Candidate, Candidate]:
        """Return the step that applies the sequence with the given models; arguments as for a single evolution."""
        bound = [part(writer, docstore, critic=critic) if isinstance(part, Evolution) else part for part in self.steps]
        return RunnableSequence(*bound, name=self.name)


Branch = Evolution | UserStep | EvolutionSequence
"""Entry of a distribution: what happens to a question between its review and its answer."""


def compose(parts: Iterable[Any]) -> Branch:
    """Join Runnables and functions into one sequence, in which `simple` is left out; if none is left, return `simple`.

    Sequences are flattened. Neighbouring Runnables that are not evolutions become one user step; inside this step, a
    Runnable may pass any value to the next Runnable.

    Raises:
        ConfigError: if a part is neither a Runnable nor a function, or if an evolution after `follow_up` is neither a
            style nor a persona. `follow_up` makes the question the last of a conversation, but all evolutions except
            styles and personas need a question that stands alone.
    """
    steps = _grouped(step for part in parts for step in _flatten(part))
    kinds = [kind for step in steps for kind in kinds_of(step)]
    first = next((at for at, kind in enumerate(kinds) if kind.writes_turns), len(kinds))
    if late := [kind.name for kind in kinds[first + 1 :] if not (kind.style or kind.persona)]:
        raise ConfigError(
            f"{late[0]} needs a question that stands alone, but {kinds[first].name} comes before it: put "
            f"{kinds[first].name} last; only styles and personas may follow it"
        )
    if len(steps) < 2:
        return steps[0] if steps else simple
    names = [step.get_name() for step in steps if isinstance(step, Evolution) or step.evolves]
    return EvolutionSequence(*steps, name="+".join(names) or SIMPLE)


def parts_of(branch: Branch) -> list[Evolution | UserStep]:
    """Return the evolutions and user steps of a branch in order; an empty list for `simple`."""
    return _grouped(_flatten(branch))


def kinds_of(part: Runnable[Any, Any]) -> tuple[Kind, ...]:
    """Return the `Kind` (settings) of each evolution in a branch or step; empty if there is no evolution.

    Evolutions inside of wrappers, such as those by `with_retry`, are found too.
    """
    part = inner_runnable(part.step if isinstance(part, UserStep) else part)
    return part.kinds if isinstance(part, Evolution | EvolutionSequence) else ()


def adds_passage(branch: Branch) -> bool:
    """Return True if an evolution of a branch first adds passages that share an entity with the drawn passage.

    `multi_context` is such an evolution; `thematic`, which adds passages that share words, is not.
    """
    return any(kind.adds_passage for kind in kinds_of(branch))


def is_searched(branch: Branch) -> bool:
    """Return True if a branch of evolutions writes unanswerable questions, for which the whole corpus is searched."""
    return not all(kind.answerable for kind in kinds_of(branch))


def _flatten(part: Any) -> Iterator[Any]:
    """Yield evolutions, user steps and other parts in order, without `simple`."""
    if isinstance(part, Evolution):
        yield from [] if part.kind is None else [part]
    elif (isinstance(part, RunnableSequence) and not part.name) or isinstance(part, EvolutionSequence):
        for step in part.steps:
            yield from _flatten(step)
    else:
        yield part


def _grouped(parts: Iterable[Any]) -> list[Evolution | UserStep]:
    """Return evolutions and user steps; neighbouring Runnables and functions of the user are one step."""
    steps: list[Evolution | UserStep] = []
    for part in parts:
        bound = isinstance(part, CandidateStep) and not (isinstance(part, UserStep) and part.evolves)
        last = steps[-1] if steps else None
        if isinstance(part, Evolution):
            steps.append(part)
        elif bound or not isinstance(last, UserStep) or not last.evolves:
            steps.append(user_step(part, evolves=not bound))
        else:
            steps[-1] = user_step(last, part, evolves=True)
    return steps


def evolution(name: str, instruction: str, *, asks_more: bool = True) -> Evolution:
    """Return an evolution that rewrites the question by an instruction of your own.

    Args:
        name: name of the evolution in distributions and rows.
        instruction: instruction for the writer, in the language of the documents. The writer reads `question` and
            `passages` and returns the new `question`.
        asks_more: True if the new question must be deeper or broader than the old one.

    Raises:
        ConfigError: if the name or the instruction is blank, or the name is taken or contains "+".
    """
    if not name.strip() or not instruction.strip():
        raise ConfigError("evolution(name, instruction) needs a name, and an instruction how to rewrite the question")
    if "+" in name or name in EVOLUTIONS:
        raise ConfigError(f"an evolution cannot be named {name!r}: choose a name that is not taken and contains no +")
    return _evolution_of(Kind(name, instruction=instruction, asks_more=asks_more))


def persona(description: str) -> Evolution:
    """Return an evolution that rephrases the question as a certain person would ask it.

    The rows have the description as `metadata["persona"]`, so `report.summary(by="persona")` gives the scores of each
    persona. `propose_personas` proposes descriptions.

    Args:
        description: who asks, in a sentence, such as "A tenant who knows no legal terms"; in any language.

    Raises:
        ConfigError: if the description is not a text, or is blank.
    """
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"persona(description) needs a sentence that says who asks, got {description!r}")
    return _evolution_of(Kind("persona", "evolve_persona", asks_more=False, persona=description.strip()))


def style(name: str, instruction: str = "") -> Evolution:
    """Return an evolution that rephrases the question in a style, without changing what it asks for.

    The rows have the name as `metadata["style"]`, so `report.summary(by="style")` gives the scores of each style.

    Args:
        name: "misspelt", "terse" (keywords of a web search), "formal", "angry", "code-mixed" (words of another
            language among those of the documents), "voice" (transcript of speech), or a name of your own.
        instruction: instruction for the writer, in the language of the documents; required for a name of your own. The
            writer reads `question` and `passages` and returns the new `question`.

    Raises:
        ConfigError: if there is no such style and no instruction, or the name of your own is taken or contains "+".
    """
    packaged = EVOLUTIONS.get(str(name).strip().replace("_", "-"))
    if packaged and packaged.kind and packaged.kind.style and not instruction:
        return packaged
    if not instruction:
        known = [evolution.kind.style for evolution in EVOLUTIONS.values() if evolution.kind and evolution.kind.style]
        raise ConfigError(
            f"there is no style {name!r}; choose from {', '.join(known)}, or pass an instruction: "
            f"style(name, instruction){did_you_mean(name, known)}"
        )
    own = evolution(name, instruction, asks_more=False).kind
    return _evolution_of(replace(own, style=name.strip())) if own else simple


def audience(
    personas: Sequence[str], styles: Sequence[str] = (), lengths: Sequence[str] = ("short", "medium", "long")
) -> Evolution:
    """Return an evolution that rephrases each question for a randomly drawn person, style and length.

    One evolution covers all combinations, in one call per question. A combination is drawn at random for each passage;
    all questions that start from a passage have the passage's combination. `metadata` of a row names its `persona`,
    `style` and `length`, so `report.summary(by="length")` gives the scores of each.

    Args:
        personas: who asks, as for `persona`.
        styles: how the person asks, such as "polite" or "keywords of a search engine"; by default, the description of
            the person decides.
        lengths: "short" (about 6 words), "medium" (15) or "long" (35).

    Raises:
        ConfigError: if there are no personas, one is blank, or a length does not exist.
    """
    choices = {"persona": personas, "style": styles or ("as this person writes",), "length": lengths}
    for name, texts in choices.items():
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ConfigError(f"audience needs a list of texts for each {name}, got {texts!r}")
    for length in lengths:
        check_choice("a length", length, [*LENGTHS])
    drawn = tuple((name, tuple(texts)) for name, texts in choices.items())
    return _evolution_of(Kind("audience", "evolve_audience", asks_more=False, audience=drawn))


def _evolution_of(kind: Kind) -> Evolution:
    return Evolution(name=kind.name, kind=kind)


simple = Evolution(name=SIMPLE)
reasoning = _evolution_of(Kind("reasoning", "evolve_reasoning"))
conditional = _evolution_of(Kind("conditional", "evolve_conditional"))
multi_context = _evolution_of(Kind(MULTI_CONTEXT, "evolve_multi_context", adds_passage=True))
thematic = _evolution_of(Kind(THEMATIC, "evolve_thematic", adds_theme=True))
conversational = _evolution_of(Kind("conversational", "evolve_conversational", asks_more=False))
unanswerable = _evolution_of(Kind("unanswerable", "evolve_unanswerable", asks_more=False, answerable=False))
off_topic = _evolution_of(Kind("off_topic", "evolve_off_topic", asks_more=False, answerable=False))
numbers = _evolution_of(Kind("numbers", "evolve_numbers", needs_numbers=True))
follow_up = _evolution_of(Kind("follow_up", "evolve_follow_up", asks_more=False, writes_turns=True))

_PACKAGED = [simple, reasoning, conditional, multi_context, thematic, conversational, unanswerable, off_topic, numbers]
_STYLES = ("misspelt", "terse", "formal", "angry", "code-mixed", "voice")
_STYLED = [_evolution_of(Kind(n, f"evolve_{n.replace('-', '_')}", asks_more=False, style=n)) for n in _STYLES]

EVOLUTIONS: Mapping[str, Evolution] = {one.get_name(): one for one in (*_PACKAGED, follow_up, *_STYLED)}
"""Packaged evolutions by name."""


DISTRIBUTION: Mapping[str, float] = {"simple": 0.5, "reasoning": 0.25, "conditional": 0.15, "multi_context": 0.1}
"""Distribution of a generator without one of its own."""


def normalize_shares(distribution: Any) -> dict[Branch, float]:
    """Return a mapping from each evolution of a distribution to its share of the rows; the shares sum to 1.

    Args:
        distribution: mapping of evolutions or their names to shares, or a list of pairs (share, evolution).

    Raises:
        ConfigError: if an evolution does not exist, a share is not above 0, or the distribution is empty.
    """
    pairs = [(share, key) for key, share in distribution.items()] if isinstance(distribution, Mapping) else distribution
    are_pairs = isinstance(pairs, list | tuple) and all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs)
    if not are_pairs:
        raise ConfigError(
            "distribution must be a mapping of evolutions to shares, or a list of pairs (share, evolution), "
            f"got {distribution!r}"
        )
    shares: dict[Branch, float] = {}
    unnamed: list[UserStep] = []
    for share, key in pairs:
        branch = _to_branch(key)
        unnamed += [part for part in parts_of(branch) if isinstance(part, UserStep) and not part.named]
        if not isinstance(share, int | float) or not (isfinite(share) and share > 0):
            raise ConfigError(f"the share of {branch.get_name()} must be a number above 0, got {share!r}")
        shares[branch] = shares.get(branch, 0.0) + float(share)
    if not shares:
        raise ConfigError("distribution must contain at least one evolution, such as {'simple': 1}")
    if len({id(part.step) for part in unnamed}) > 1:
        raise ConfigError(
            "two evolutions of the distribution have no name, so their rows cannot be told apart: use a named "
            "function, RunnableLambda(function, name='...') or chain.with_config(run_name='...')"
        )
    total = sum(shares.values())
    return {branch: share / total for branch, share in shares.items()}


def branch_of_names(names: str, own: Mapping[str, Evolution] | None = None) -> Branch | None:
    """Return the branch (sequence of evolutions) for a text such as "reasoning+conditional".

    Return None if a name is neither that of a packaged evolution nor a key of `own`.
    """
    known = {**EVOLUTIONS, **(own or {})}
    parts = [known.get(name.strip()) for name in names.split("+")]
    return None if None in parts else compose(parts)


def _to_branch(key: Any) -> Branch:
    """Return the branch for a key of a distribution: names joined by "+", a Runnable or a function."""
    if isinstance(key, Runnable) or callable(key):
        return compose([key])
    branch = branch_of_names(str(key))
    if not isinstance(key, str) or branch is None:
        raise ConfigError(
            f"there is no evolution {key!r}; choose from {', '.join(EVOLUTIONS)}, joined by +, or in Python pass "
            f"a Runnable such as evolution('name', 'instruction'){did_you_mean(key, EVOLUTIONS)}"
        )
    return branch


def allocate_rows(shares: Mapping[Branch, float], size: int, seed: int, *, tree: bool = False) -> list[Branch]:
    """Return the evolution of each row, in random order; the shares are rounded by the largest remainder method.

    Args:
        shares: share of the rows for each evolution; all above 0, with sum 1.
        size: number of rows.
        seed: random seed of the order.
        tree: True for one row of each evolution in turn, `simple` first, whatever its share.
    """
    if tree:
        return list(islice(cycle(branches_of_tree(shares)), size))
    quotas = [(evolution, share * size) for evolution, share in shares.items()]
    counts = {evolution: int(quota) for evolution, quota in quotas}
    by_remainder = sorted(quotas, key=lambda pair: counts[pair[0]] - pair[1])
    for evolution, _ in by_remainder[: size - sum(counts.values())]:
        counts[evolution] += 1
    rows = [evolution for evolution, count in counts.items() for _ in range(count)]
    Random(seed).shuffle(rows)
    return rows


def branches_of_tree(shares: Mapping[Branch, float]) -> list[Branch]:
    """Return the evolutions that each tree (questions about one fact) has: all of a distribution, `simple` first.

    Raises:
        ConfigError: if the distribution lacks `simple`, or has no other evolution.
    """
    if simple not in shares or len(shares) < 2:
        raise ConfigError(
            "tree=True compares evolutions with the simple question about the same fact: the distribution needs "
            f"'simple' and at least one other evolution, got {', '.join(branch.get_name() for branch in shares)}"
        )
    return [simple, *(branch for branch in shares if branch != simple)]
