"""Waves: send the requests of a run in rounds of batches, wait for the batches, and store the replies.

The journal gets an entry for each batch just before the batch is created. The entry is removed when the replies of the
batch are stored. A run that was killed therefore continues with the same batches.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import reduce

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.data.notes import Note
from langchain_rageval.errors import BudgetExceeded, ConfigError, JudgeUnavailable
from langchain_rageval.run.batch.recorder import (
    BatchApi,
    BatchState,
    RecordedRequest,
    Recorder,
    cost_of,
    groups_of,
    reported_tokens,
)
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.retry import is_transient, status_of

_BATCHES = "batches"
_TRIES_TO_SUBMIT = 5
_NO_SUCH_API = (404, 405, 501)


@dataclass(frozen=True)
class SentBatch:
    """Batch that a run has sent.

    Attributes:
        key: key of the batch that this package chose.
        provider: name of the provider.
        endpoint: address of the provider's API.
        count: number of requests in the batch.
        since: Unix time just before the batch was created.
        id: id that the provider gave the batch; None until the id is known.
    """

    key: str
    provider: str
    endpoint: str
    count: int
    since: float
    id: str | None = None

    def __str__(self) -> str:
        """Return id and provider."""
        return f"{self.id} at {self.provider}"


class Waves:
    """Sends the requests of a run in waves: each wave is a round of batches that are sent together.

    Args:
        recorder: holds the requests to send.
        journal: stores which batches were sent; None keeps them in memory.
        poll: seconds between two checks whether a batch has ended.
        stopped: event that ends the waiting when set.
        governor: limits the cost of the run.

    Attributes:
        number: number of waves sent so far.
        sent: number of requests in all waves sent so far.
        show: function that displays a line about the progress.
        under_way: batches that are not known to have ended.
    """

    def __init__(
        self, recorder: Recorder, journal: Journal | None, poll: float, stopped: threading.Event, governor: Governor
    ) -> None:
        self.number = 0
        self.sent = 0
        self.show: Callable[[str], object] = str  # shows nothing
        self.under_way: list[SentBatch] = []
        self._recorder, self._journal, self._poll = recorder, journal, poll
        self._stopped, self._governor = stopped, governor

    def claimed(self) -> AbstractContextManager[None]:
        """Return a context in which no other process sends batches of this journal, so that no batch is paid for twice.

        Raises:
            JournalError: on entry, if another process is in such a context.
        """
        return nullcontext() if self._journal is None else self._journal.claimed("batches")

    def resume(self) -> None:
        """Wait for the unfinished batches that the journal records, and store their replies.

        Raises:
            JudgeUnavailable: if the provider refused a batch.
        """
        apis = {(api.provider, api.endpoint): api for api in self._recorder.apis.values()}
        for batch in [known for known in self._known() if (known.provider, known.endpoint) in apis]:
            found = batch.id or apis[batch.provider, batch.endpoint].find(batch.key, batch.count, batch.since)
            self._remember(replace(batch, id=found), is_under_way=found is not None)  # None: it was not created
        self._wait({batch.key: apis[batch.provider, batch.endpoint] for batch in self.under_way}, {})

    def send(self) -> bool:
        """Send the collected requests in batches, wait for the replies and store the replies.

        Returns:
            False if there are no requests to send.

        Raises:
            ConfigError: if the endpoint has no batch API, or rejects the key.
            JudgeUnavailable: if the provider refused a whole batch.
        """
        wave = self._recorder.take_wave()
        if not wave or not self._fits_budget(wave):
            return bool(wave)
        self.number += 1
        self.sent += len(wave)
        apis = {self._submit(part).key: part[0].api for part in _parts(wave)}
        self._wait(apis, {request.id: request.owner for request in wave})
        self._recorder.losses.update(one.id for one in wave if self._recorder.store.get(one.id) is None)
        return True

    @property
    def interruption_notes(self) -> Iterator[Note]:
        """Note about the batches that continue at the provider when the run ends early; empty if there are none."""
        if self.under_way and self._journal is None:
            yield Note("lost-batches", batches=self.under_way)
        elif self.under_way and self._journal is not None:
            yield Note("open-batches", batches=self.under_way, journal=self._journal.path)

    @property
    def notes(self) -> Iterator[str]:
        """Note for the report on how many requests were sent in batches; none before the first wave (round of batches).

        Without a journal, a second note says that, after an interruption, a new run would have paid for its batches
        again.
        """
        providers = sorted({api.provider for api in self._recorder.apis.values()})
        if self.number:
            live = self._recorder.sent_live
            yield Note("sent-in-batches", providers=providers, sent=self.sent, waves=self.number, live=live)
            if self._journal is None:
                yield Note("batches-without-journal")

    def _fits_budget(self, wave: Sequence[RecordedRequest]) -> bool:
        """Return True if a wave fits the budget; otherwise its requests are refused from now on."""
        cost = reduce(Cost.plus, map(cost_of, wave), Cost())
        try:
            self._governor.check_cost(cost, self._recorder.spent)
        except BudgetExceeded as error:
            self._recorder.refused = error
            return False
        self._recorder.count_sent(Cost(calls=cost.calls, embeddings=cost.embeddings))
        return True

    def _submit(self, requests: Sequence[RecordedRequest]) -> SentBatch:
        """Send one batch; the journal knows it before the provider does."""
        api = requests[0].api
        batch = SentBatch(uuid.uuid4().hex, api.provider, api.endpoint, len(requests), time.time())
        self._remember(batch)
        batch_id, tries = None, 0
        while batch_id is None:
            try:
                batch_id = api.submit(requests, batch.key)
            except Exception as error:
                tries += 1
                is_lasting = not is_transient(error) or status_of(error) in _NO_SUCH_API
                if is_lasting:
                    self._remember(batch, is_under_way=False)
                if is_lasting or tries == _TRIES_TO_SUBMIT:
                    raise _explained(error, api) from error
                self._pause()
                batch_id = api.find(batch.key, batch.count, batch.since)  # it may have been created all the same
        batch = replace(batch, id=batch_id)
        self._remember(batch)
        return batch

    def _pause(self) -> None:
        if self._stopped.wait(self._poll):
            raise CancelledError("the run was stopped")

    def _wait(self, apis: dict[str, BatchApi], owners: dict[str, str]) -> None:
        """Wait for the batches under way and store their replies.

        Args:
            apis: batch APIs by the key of the batch.
            owners: sample and metric of each request, by id, as far as they are known.
        """
        states: dict[str, BatchState] = {}
        where = f"wave {self.number}" if self.number else "earlier wave"
        batches = "1 batch" if len(apis) == 1 else f"{len(apis)} batches"
        while self.under_way:
            for batch in list(self.under_way):
                if (state := self._state(batch, apis[batch.key])) is not None:
                    states[batch.key] = state
                    if state.has_ended:
                        self._collect(batch, apis[batch.key], state, owners)
            failed = sum(state.failed for state in states.values())
            answered = sum(state.answered for state in states.values())
            self.show(f"{where}: {batches}, {answered:,} answered{f', {failed} failed' if failed else ''}")
            if self.under_way:
                self._pause()

    def _state(self, batch: SentBatch, api: BatchApi) -> BatchState | None:
        """Return the state of a batch; None while the provider cannot be reached."""
        try:
            return api.state(str(batch.id))
        except Exception as error:
            if is_transient(error):
                self.show(f"{api.provider} cannot be reached, next try in {self._poll:g} s")
                return None
            raise _explained(error, api) from error

    def _collect(self, batch: SentBatch, api: BatchApi, state: BatchState, owners: dict[str, str]) -> None:
        """Store the replies of a batch that has ended."""
        if state.refusal:
            self._remember(batch, is_under_way=False)
            raise JudgeUnavailable(
                f"{api.provider} refused the batch {batch.id}: {state.refusal}. Remove the cause and start the run "
                "again; with the same journal, no reply is paid for twice"
            )
        for request_id, reply in api.replies(str(batch.id)):
            if reply.is_final and self._recorder.store.get(request_id) is None:
                self._recorder.store.put(request_id, replace(reply, owner=owners.get(request_id)))
                self._recorder.count_sent(Cost(tokens=reported_tokens(reply)))
        self._remember(batch, is_under_way=False)

    def _known(self) -> list[SentBatch]:
        entry = self._journal.get(_BATCHES) if self._journal is not None else None
        return [SentBatch(**batch) for batch in json.loads(entry or "{}").values()]

    def _remember(self, batch: SentBatch, *, is_under_way: bool = True) -> None:
        """Store a batch; or remove it, if it was not created or its replies are stored."""
        others = [known for known in self.under_way if known.key != batch.key]
        self.under_way = [*others, batch] if is_under_way and batch.id else others
        if self._journal is not None:  # no other process writes the entry: see `claimed`
            batches = {known.key: asdict(known) for known in self._known() if known.key != batch.key}
            self._journal.put(_BATCHES, json.dumps(batches | ({batch.key: asdict(batch)} if is_under_way else {})))


def _parts(wave: Sequence[RecordedRequest]) -> Iterator[list[RecordedRequest]]:
    """Yield the requests of a wave in batches: of one API, path and model each, within the provider's limits."""
    for group in groups_of(wave):
        part, size = list[RecordedRequest](), 0
        for request in group:
            if part and (len(part) == request.api.max_requests or size + request.size > request.api.max_bytes):
                yield part
                part, size = [], 0
            part.append(request)
            size += request.size
        yield part


def _explained(error: Exception, api: BatchApi) -> Exception:
    """Return an error about a batch with what to do; an error that may pass as it is."""
    status = status_of(error)
    if status in _NO_SUCH_API:
        return ConfigError(
            f"{api.endpoint} has no batch API (HTTP {status}): leave batch= out, or write the requests to a file with "
            "`rageval requests` for a server such as vLLM"
        )
    if status is None or is_transient(error):
        return error
    return JudgeUnavailable(f"{api.provider} refused the batch (HTTP {status}): {redact_message(error, api)}")
