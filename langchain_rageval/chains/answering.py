"""Answering: send the questions of samples to a user's RAG chain, and store its answers in a journal.

The settings, data and models of a chain may be anywhere. The package therefore cannot detect whether the chain would
still give the same answers. A journal belongs to one run, and its answers are used again only if the caller states that
the new run is the same run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig

from langchain_rageval.chains.chain_input import (
    as_chain,
    conversation_keys,
    input_builder,
    is_async_only,
    takes_history,
)
from langchain_rageval.chains.events import ChainAnswer, ChainCollector
from langchain_rageval.data.schema import Sample, Turn
from langchain_rageval.errors import ConfigError, JournalError
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.drivers import agather
from langchain_rageval.run.journal import Journal, journal_key
from langchain_rageval.run.progress import Progress, show_progress
from langchain_rageval.run.retry import MAX_STALE_TRIES, is_stale_connection
from langchain_rageval.run.run import Run, check_options
from langchain_rageval.run.threads import shared_threads
from langchain_rageval.run.turns import ModelTurn, engines_of

_LOG = logging.getLogger("langchain_rageval")
_RUN = "run of a chain"
"""Key of the record of the run: its version, and whether it reached its last question."""
_REMEDY = (
    "pass the version of that run (version=, --version), continue an unfinished run (resume=True, --resume), ask the "
    "failed questions of a finished one (retry_failed=True, --retry-failed), or name another journal"
)


class AnswerOptions(TypedDict, total=False):
    """Options of a run that asks a chain the questions of samples.

    Attributes:
        max_concurrency: Maximum number of questions at a time, 8 by default. If the chain contains a model that runs in
            this process, one question is asked at a time, whatever the number.
        timeout: Seconds for one question. A call that takes longer is abandoned and recorded as an error. None, the
            default, sets no limit.
        journal: Path of an SQLite file that stores each answer as soon as the chain has given it. The file belongs to
            one run. A run is finished when it has reached its last question, even if questions failed. Stored answers
            are used again only if `version`, `resume` or `retry_failed` states that it is the same run. Otherwise
            `ConfigError` is raised before a question is asked. None, the default, stores nothing.
        version: Version of the chain, its settings and its data, any text. If a journal was begun under the same
            version, an unfinished run continues, and a finished run takes its answers from the journal. None, the
            default, states no version.
        resume: True to continue an unfinished run, after a crash or Ctrl-C; failed questions are asked again.
        retry_failed: True to ask the failed questions of a finished run again; the other answers are taken from the
            journal.
        progress: True, the default, to show the progress on stderr.
    """

    max_concurrency: int
    timeout: float | None
    journal: str | Path | Journal | None
    version: str | None
    resume: bool
    retry_failed: bool
    progress: bool


ANSWER_DEFAULTS: AnswerOptions = {
    "max_concurrency": 8,
    "timeout": None,
    "journal": None,
    "version": None,
    "resume": False,
    "retry_failed": False,
    "progress": True,
}


class AnswerStore:
    """Store of the answers of one run of a chain in a journal.

    A run is finished when it has reached its last question, even if questions failed. The stored answers of an earlier
    run are used only in these cases:

    - The run is unfinished, and `resume` is True or `version` is the version of the run. Failed questions are asked
      again.
    - The run is finished, and `version` is the version of the run. The failures are used again, too.
    - The run is finished, and `retry_failed` is True. Failed questions are asked again.

    In any other case, or if `version` is set and differs from the version of the run, ConfigError is raised.

    Args:
        options: options of the run. A journal given as a path is closed by `close`; a journal of None stores nothing.
        config: LangChain config of the calls. An answer is found again only if the texts and numbers among the
            configurable values of the config are the same.

    Raises:
        ConfigError: if the stored answers must not be used; see above. The journal is not changed then.
        JournalError: if the journal cannot be read or written.
    """

    def __init__(self, options: AnswerOptions, config: RunnableConfig | None = None) -> None:
        journal, self._closed = options["journal"], False
        self._owns_journal = isinstance(journal, str | Path)
        self._journal = Journal(journal) if isinstance(journal, str | Path) else journal
        configurable = (config or {}).get("configurable", {}).items()
        self._configurable = {name: value for name, value in configurable if isinstance(value, str | int | float)}
        self._version, self._keeps_failures = options["version"], False
        if self._journal is not None:
            try:
                self._open(self._journal, options["resume"], options["retry_failed"])
            except BaseException:
                self.close()
                raise

    def _open(self, journal: Journal, resume: bool, retry_failed: bool) -> None:
        """Record the run, or check that the recorded one may be continued."""
        if (entry := journal.get(_RUN)) is None:
            self._record(is_finished=False)
            return
        record = json.loads(entry)
        stored, is_finished = record["version"], record["is_finished"]
        is_same = stored is not None and stored == self._version
        state = f"{'a finished' if is_finished else 'an unfinished'} run {_of_version(stored)}"
        if self._version not in (None, stored):
            raise ConfigError(f"{journal.path} holds {state}, not {_of_version(self._version)}: {_REMEDY}")
        if not is_same and not (retry_failed if is_finished else resume):
            raise ConfigError(f"{journal.path} holds {state}: {_REMEDY}")
        self._version, self._keeps_failures = stored, is_finished and not retry_failed
        if is_finished:
            _LOG.warning("answers are taken from %s, which holds %s", journal.path, state)

    def load(self, question: str, history: Sequence[Turn] = ()) -> ChainAnswer | None:
        """Return the stored answer to a question after the turns in `history`; None if there is none.

        Raises:
            JournalError: if the journal cannot be read.
        """
        entry = None if self._journal is None else self._journal.get(self._key(question, history))
        if entry is None:
            return None
        try:
            answer = ChainAnswer(**json.loads(entry))
        except (ValueError, TypeError) as error:
            problem = f"{self._journal} holds an entry that is not an answer: {error}"
            raise JournalError(f"{problem}; name another path") from error
        return answer if answer.error is None or self._keeps_failures else None

    def save(self, question: str, answer: ChainAnswer, history: Sequence[Turn] = ()) -> None:
        """Store the answer to a question after the turns in `history`, or the error of a failed call.

        Raises:
            JournalError: if the journal cannot be written.
        """
        if self._journal is not None:
            self._journal.put(self._key(question, history), json.dumps(asdict(answer), ensure_ascii=False))
            if self._closed:  # by a call that outlives its interrupted run
                self.close()

    def close(self, *, is_finished: bool = False) -> None:
        """Close the journal if it was given as a path; a Journal object stays open.

        Args:
            is_finished: True if the run has reached its last question. The journal records this, also if it stays open.
        """
        self._closed = True
        if is_finished and self._journal is not None:
            self._record(is_finished=True)
        if self._owns_journal and self._journal is not None:
            self._journal.close()

    def _record(self, *, is_finished: bool) -> None:
        if self._journal is not None:
            self._journal.put(_RUN, json.dumps({"version": self._version, "is_finished": is_finished}))

    def _key(self, question: str, history: Sequence[Turn]) -> str:
        content = [question, [turn.model_dump() for turn in history]] if history else question
        return journal_key("answer of a run", self._configurable, content)


def _of_version(version: str | None) -> str:
    return "without a version" if version is None else f"of version {version!r}"


class Answering:
    """Run that asks a chain the questions of samples.

    The run can be executed only once, in threads or on an event loop.

    Args:
        samples: samples whose questions are asked. Their answers and contexts are replaced.
        chain: the chain, a Runnable or a function.
        options: options of the run, with a value for each option.
        config: LangChain config of the calls.

    Raises:
        ConfigError: if `chain` is neither a Runnable nor a function, an option is invalid, or the journal belongs to
            another run.
    """

    def __init__(
        self, samples: Sequence[Sample], chain: Any, options: AnswerOptions, config: RunnableConfig | None = None
    ) -> None:
        check_options(options)
        self._samples, self._chain, self._config = samples, as_chain(chain), config
        self._run, self._options = Run(timeout=options["timeout"]), options
        self._build_input, self._keys = input_builder(self._chain), conversation_keys(self._chain)
        chats = sum(bool(sample.history) for sample in samples)
        if chats and not takes_history(self._chain):
            _LOG.warning("the chain takes no history: %d questions are asked without the turns before them", chats)
        # not `gates_of`: a chain that holds a metric of its own would wait for itself
        self._gates = [AdaptiveLimiter(1)] if engines_of(self._chain) else []
        self._answers: dict[int, ChainAnswer] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._store = AnswerStore(options, config)

    @property
    def answered(self) -> list[Sample]:
        """Copies of the samples asked so far, in order, each with the chain's answer or with `metadata["error"]`."""
        return [answer.into(self._samples[index]) for index, answer in sorted(dict(self._answers).items())]

    def run(self) -> list[Sample]:
        """Ask all questions in threads and return the answered samples."""
        if is_async_only(self._chain):  # on a loop in another thread; this thread's may be in use
            future = shared_threads().submit(lambda: asyncio.run(self.arun()))
            try:
                return future.result()
            except BaseException:
                self._stopped.set()
                raise
        with self._running() as progress:
            # `batch` is not used: behind `with_retry` it returns the answer to one question for another one.
            jobs = [partial(self._ask, index, progress) for index in range(len(self._samples))]
            deque(shared_threads().stream(jobs, self._options["max_concurrency"]), maxlen=0)
        return self.answered

    async def arun(self) -> list[Sample]:
        """Ask all questions on the caller's event loop, through the chain's async method.

        Return the answered samples.
        """
        slots = asyncio.Semaphore(self._options["max_concurrency"])

        async def ask(index: int) -> None:
            async with slots:
                if not self._stopped.is_set():
                    await self._aask(index, progress)

        with self._running() as progress:
            await agather(map(ask, range(len(self._samples))))
        return self.answered

    @contextmanager
    def _running(self) -> Any:
        total = len(self._samples)
        try:
            with show_progress(total, None, show=self._options["progress"], unit="questions") as progress:
                yield progress
        finally:
            self._store.close(is_finished=len(self._answers) == total)

    def _ask(self, index: int, progress: Progress) -> None:
        question, history = self._samples[index].question, self._samples[index].history
        if (answer := self._store.load(question, history)) is None:
            collector = ChainCollector()
            chain_input = self._build_input(question, history)
            call = partial(self._chain.invoke, chain_input, collector.config(self._config, self._keys))
            with ModelTurn(self._gates) as turn:
                answer = collector.answer(question, self._output(call, turn), self._chain, chain_input)
            self._store.save(question, answer, history)
        self._finish(index, answer, progress)

    async def _aask(self, index: int, progress: Progress) -> None:
        question, history = self._samples[index].question, self._samples[index].history
        if (answer := self._store.load(question, history)) is None:
            async with ModelTurn(self._gates):
                for _ in range(MAX_STALE_TRIES):  # a client may meet connections of an event loop that was closed
                    collector = ChainCollector()
                    config, given = collector.config(self._config, self._keys), self._build_input(question, history)
                    output = await self._aoutput(given, config)
                    if not (isinstance(output, Exception) and is_stale_connection(output)):
                        break
            answer = collector.answer(question, output, self._chain, given)
            self._store.save(question, answer, history)
        self._finish(index, answer, progress)

    def _output(self, call: Callable[[], Any], turn: ModelTurn) -> Any:
        """Return the output of a call, or the exception that it raised; a call that is abandoned keeps its turn."""
        try:
            return self._run.call_with_timeout(call, "the chain", turn)
        except Exception as error:
            return error

    async def _aoutput(self, chain_input: Any, config: RunnableConfig) -> Any:
        try:
            return await self._run.await_with_timeout(self._chain.ainvoke(chain_input, config), "the chain")
        except Exception as error:
            return error

    def _finish(self, index: int, answer: ChainAnswer, progress: Progress) -> None:
        with self._lock:
            self._answers[index] = answer
            progress.advance(failed=answer.error is not None)
