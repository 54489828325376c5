"""degrade: variants of a sample that are worse in a known way; a metric should score them lower.

Source: the WikiEval protocol of Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation",
arXiv:2309.15217, section 4: an answer without the context, an incomplete answer, a context padded with irrelevant
sentences.
"""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

from pydantic import ConfigDict

from langchain_rageval.data.documents import to_documents
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import SampleError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import Driven
from langchain_rageval.testset.candidate import ask_step, prompt_step
from langchain_rageval.text.sentences import split_sentences

Variants = dict[str, Sample]


class Degrade(Driven[Any, Variants]):
    """Runnable that returns worse variants of a sample, by name of the variant; build it with `degrade(writer)`."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    unaided: JudgeStep
    incomplete: JudgeStep
    pads: JudgeStep
    related: tuple[str, ...]

    MOST_PADDING: ClassVar[int] = 10
    """Maximum number of irrelevant sentences; below it, as many as the contexts have sentences."""

    def work(self, state: Any) -> Operation[Variants]:
        """Return the variants of a sample by name: "ungrounded", "incomplete" and "padded".

        The writer (the model passed to `degrade`) makes the two worse answers in two calls. The irrelevant sentences
        of "padded" are drawn from the texts in `related`; if these have none, the writer makes them in a third call.
        """
        sample = Sample.parse(state)
        for field in ("answer", "contexts"):
            if not getattr(sample, field):
                raise SampleError(f"degrade reads answer and contexts; sample {sample.id!r} lacks {field}", field)
        question, answer = sample.question, sample.answer or ""
        unaided, incomplete, padding = yield Gather(
            [
                ask_step(self.unaided, {"question": question}, question, _check_answer),
                ask_step(self.incomplete, {"question": question, "answer": answer}, question, _check_answer),
                self._padding(sample),
            ]
        )
        contexts = sample.contexts or []  # the irrelevant sentences are distributed over them, one at a time
        padded = [" ".join([text, *padding[place :: len(contexts)]]) for place, text in enumerate(contexts)]
        return {
            "ungrounded": _variant(sample, "ungrounded", answer=unaided.answer.strip()),
            "incomplete": _variant(sample, "incomplete", answer=incomplete.answer.strip()),
            "padded": _variant(sample, "padded", contexts=padded),
        }

    def _padding(self, sample: Sample) -> Operation[list[str]]:
        contexts = sample.contexts or []
        own = [sentence for context in contexts for sentence in split_sentences(context)]
        count = min(self.MOST_PADDING, max(1, len(own)))
        foreign = [s for text in self.related if text not in contexts for s in split_sentences(text) if s not in own]
        if foreign:
            return Random(sample.id).sample(foreign, min(count, len(foreign)))
        inputs = {"question": sample.question, "context": "\n".join(contexts)}

        def problem_of(answer: Any) -> str | None:
            return None if any(map(str.strip, answer.sentences)) else "there is no sentence"

        answer = yield from ask_step(self.pads, inputs, sample.question, problem_of)
        return [sentence for sentence in answer.sentences if sentence.strip()][:count]


def degrade(writer: JudgeLike, related: Any = None) -> Degrade:
    """Build a Runnable from a sample to variants that are worse in a known way.

    Args:
        writer: model that answers without the contexts, makes the answer incomplete, and writes irrelevant sentences if
            there are no related documents.
        related: documents on topics near those of the samples: the path of a file or folder, a DataFrame, or an
            iterable of texts, LangChain Documents, objects with a text and `pathlib.Path`s. Irrelevant sentences are
            drawn from them, always the same for a sample. A str in an iterable is always a text.

    Returns:
        A Runnable that reads `question`, `answer` and `contexts`, and returns `ungrounded` and `incomplete`, which
        differ in the answer, and `padded`, which differs in the contexts. The id of each is the sample's id, "@" and
        the variant's name.

    Raises:
        ConfigError: if `related` contains something without a text.
        SampleError: from the Runnable, if a sample lacks its answer or contexts.
    """
    texts = [] if related is None else [document.page_content for document in to_documents(related)]
    judge = Judge.of(writer)
    return Degrade(
        unaided=prompt_step("answer_unaided", judge),
        incomplete=prompt_step("degrade_answer", judge),
        pads=prompt_step("pad_context", judge),
        related=tuple(texts),
        name="degrade",
    )


def _variant(sample: Sample, name: str, **changes: Any) -> Sample:
    return sample.model_copy(update={"id": f"{sample.id}@{name}", **changes})


def _check_answer(answer: Any) -> str | None:
    return None if answer.answer.strip() else "the answer is blank"
