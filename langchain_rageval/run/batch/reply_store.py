"""Reply store: replies of models by request, in the journal of a run or in memory.

A sample is scored again in each wave, from its first request on: requests whose reply is stored are answered from here.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, replace

from langchain_rageval.run.journal import Journal

_LASTING_REFUSALS = (400, 413, 422)  # the same request would be refused again; others the user may have resolved


@dataclass(frozen=True, slots=True)
class StoredReply:
    """Reply of a model.

    Attributes:
        status: HTTP status.
        body: JSON text.
        owner: sample and metric whose usage includes the reply; None before a score has used it.
    """

    status: int
    body: str
    owner: str | None = None

    @property
    def is_final(self) -> bool:
        """True if the model has answered or refused the request; False for an error that may pass."""
        return self.status < 500 and self.status not in (408, 409, 425, 429)


class ReplyStore:
    """Replies by the id of their request. Usable from threads.

    Args:
        journal: the journal; None keeps the replies in memory.
        keeps_refusals: True to keep all refusals in the journal; False to keep those that the user may resolve, such
            as of a key, in memory only.
    """

    def __init__(self, journal: Journal | None, *, keeps_refusals: bool = False) -> None:
        self.journal = journal
        self._keeps_refusals = keeps_refusals
        self._memory: dict[str, StoredReply] = {}
        self._lock = threading.Lock()

    def get(self, request_id: str) -> StoredReply | None:
        """Return the reply to a request; None if there is none."""
        with self._lock:
            return self._get(request_id)

    def put(self, request_id: str, reply: StoredReply) -> None:
        """Store a reply."""
        with self._lock:
            self._put(request_id, reply)

    def forget(self, request_id: str) -> None:
        """Keep a reply in memory only."""
        with self._lock:
            reply = self._get(request_id)
            if reply is not None and self.journal is not None:
                self._memory[request_id] = reply
                self.journal.put(_key(request_id), "")

    def claim(self, request_id: str, owner: str) -> bool:
        """Return True if the usage of the owner includes the reply, which is so for the first one that uses it."""
        with self._lock:
            reply = self._get(request_id)
            if reply is not None and reply.owner is None:
                self._put(request_id, replace(reply, owner=owner))
                return True
            return reply is not None and reply.owner == owner

    def _get(self, request_id: str) -> StoredReply | None:
        if self.journal is None or request_id in self._memory:
            return self._memory.get(request_id)
        entry = self.journal.get(_key(request_id))
        return StoredReply(**json.loads(entry)) if entry else None

    def _put(self, request_id: str, reply: StoredReply) -> None:
        if (
            self.journal is None
            or request_id in self._memory
            or (reply.status >= 400 and reply.status not in _LASTING_REFUSALS and not self._keeps_refusals)
        ):
            self._memory[request_id] = reply
        else:
            self.journal.put(_key(request_id), json.dumps(asdict(reply), ensure_ascii=False))


def _key(request_id: str) -> str:
    return f"reply:{request_id}"
