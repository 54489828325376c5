"""Requests as files in OpenAI's batch format, for models on a machine without network, such as `vllm run-batch`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from langchain_rageval.data.notes import Note
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.batch.providers import batch_line, batch_reply
from langchain_rageval.run.batch.recorder import RecordedRequest, Recorder, ReplyStore, StoredReply, groups_of
from langchain_rageval.run.journal import Journal

_WAVES = "waves"
_UNSAFE = re.compile(r"[^\w.-]+")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


@dataclass(frozen=True)
class WaveFile:
    """Files with the requests of one round (wave), which wait for replies.

    Attributes:
        number: number of the round, from 1.
        paths: paths of the files, one file for each model; the file of the judge comes first.
        owners: mapping from the custom id of each request to the sample and metric that the request belongs to.
    """

    number: int
    paths: Sequence[str]
    owners: Mapping[str, str]

    @property
    def named(self) -> str:
        """Paths of the files as text, for messages."""
        return " and ".join(self.paths)


class WaveWritten(Exception):
    """Raised after requests were written to a file; the run continues when the replies have been read.

    Args:
        wave: the files that were written.
    """

    def __init__(self, wave: WaveFile) -> None:
        super().__init__(wave)
        self.wave = wave


class FileWaves:
    """Writes the collected requests to files for a model without network; `send` then ends the run with WaveWritten.

    `rageval replies` reads the replies. A later run with the same journal uses them, and writes the next requests.

    Args:
        recorder: holds the requests to write.
        journal: stores which files were written.
        path: path of the file. None takes the path of the last file, with the next number.
    """

    def __init__(self, recorder: Recorder, journal: Journal, path: Path | None) -> None:
        self.interruption_notes: Sequence[Note] = ()
        self._recorder, self._journal, self._path = recorder, journal, path

    def claimed(self) -> AbstractContextManager[None]:
        """Return a context that does nothing, because files need no lock."""
        return nullcontext()

    def resume(self) -> None:
        """Do nothing: `rageval replies` reads the replies."""

    def send(self) -> bool:
        """Write the collected requests to files and raise WaveWritten; return False if no requests were collected.

        Raises:
            WaveWritten: after requests were written.
            ConfigError: if the file cannot be written.
        """
        if not (requests := self._recorder.take_wave()):
            return False
        last, owners = last_wave(self._journal), {request.id: request.owner for request in requests}
        is_same = last is not None and set(last.owners) == set(owners)
        number = (last.number if last else 0) + (not is_same)
        path = self._path or next_path(Path(last.paths[0] if last else "wave-1.jsonl"), number)
        wave = WaveFile(number, list(_write(path, requests)), owners)
        self._journal.put(f"{_WAVES}:{number}", json.dumps(asdict(wave)))
        self._journal.put(_WAVES, str(number))
        raise WaveWritten(wave)

    @property
    def notes(self) -> Iterator[str]:
        """Note for the report: how many waves (files of requests answered together) were read; none before one."""
        if (last := last_wave(self._journal)) is not None:
            yield Note("replies-from-files", waves=last.number)


@dataclass(frozen=True)
class RepliesRead:
    """Result of reading the replies to a file of requests.

    Attributes:
        wave: the requests that were answered.
        missing: number of requests that have no line in the replies.
        failed: number of requests that the model server did not answer.
    """

    wave: WaveFile
    missing: int
    failed: int


def last_wave(journal: Journal) -> WaveFile | None:
    """Return the record of the latest wave (requests that were written together); None if the journal has no wave."""
    number = journal.get(_WAVES)
    return None if number is None else _wave(journal, int(number))


def read_replies(paths: Sequence[Path], journal: Journal) -> RepliesRead:
    """Store the replies from files in the journal. Reading a file twice changes nothing.

    Raises:
        ConfigError: if a file cannot be read or is truncated, holds two replies to one request, or replies to requests
            that were not written.
    """
    if (last := last_wave(journal)) is None:
        raise ConfigError(f"{journal.path} holds no requests; write them with `rageval requests --journal`")
    waves = [_wave(journal, number) for number in range(last.number, 0, -1)]
    named, places, replies = " and ".join(map(str, paths)), dict[str, str](), dict[str, StoredReply]()
    for place, line in (located for path in paths for located in _lines(path)):
        request_id, reply = _parsed(place, line)
        if request_id in places:
            raise ConfigError(
                f"{place}: the request of custom_id {request_id[:12]}… is also answered in {places[request_id]}; pass "
                "the output of one run of the batch"
            )
        if not any(request_id in wave.owners for wave in waves):
            raise ConfigError(
                f"{place}: custom_id {request_id[:12]}… is of no wave in {journal.path}; pass the output for "
                f"{last.named}, or the journal of the run that wrote the requests"
            )
        places[request_id], replies[request_id] = place, reply
    if not replies:
        raise ConfigError(f"{named} is empty; pass the output for {last.named}")
    store = ReplyStore(journal, keeps_refusals=True)
    wave = max(waves, key=lambda wave: sum(request_id in wave.owners for request_id in places))  # lost ones are in two
    new = {}  # replies to requests that had none, or only a refusal
    for request_id, reply in replies.items():
        earlier = store.get(request_id)
        if reply.is_final and (earlier is None or reply.status < 400 <= earlier.status):
            new[request_id] = reply
    failed = sum(not reply.is_final for reply in replies.values())
    if wave is not last and not new and not failed:
        raise ConfigError(
            f"{named} holds the replies of wave {wave.number}, which were read before; wave {last.number} waits for "
            f"the output for {last.named}"
        )
    for request_id, reply in new.items():
        store.put(request_id, replace(reply, owner=wave.owners.get(request_id)))
    return RepliesRead(wave, sum(request_id not in places for request_id in wave.owners), failed)


def next_path(path: Path, number: int) -> Path:
    """Return `path` with its last number replaced by `number`; a name without a number gets `-number` at its end.

    For 2, `wave-1.jsonl` and `wave.jsonl` both become `wave-2.jsonl`.
    """
    numbered = _LAST_NUMBER.sub(str(number), path.stem)
    return path.with_stem(numbered if _LAST_NUMBER.search(path.stem) else f"{path.stem}-{number}")


def _write(path: Path, requests: Sequence[RecordedRequest]) -> Iterator[str]:
    """Write a file for each model, since a batch is of one model, and yield the paths."""
    groups = sorted(groups_of(requests), key=lambda group: group[0].path.endswith("/embeddings"))
    for number, group in enumerate(groups):
        model = _UNSAFE.sub("-", str(json.loads(group[0].body).get("model")))
        file_path = path if number == 0 else path.with_stem(f"{path.stem}.{model}")
        try:
            with file_path.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(map(batch_line, group))
        except OSError as error:
            raise ConfigError(f"{file_path} cannot be written: {error.strerror}; choose another path") from None
        yield str(file_path)


def _wave(journal: Journal, number: int) -> WaveFile:
    return WaveFile(**json.loads(journal.get(f"{_WAVES}:{number}") or "{}"))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file that are not blank, each after its place."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; pass the output of the batch") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; pass the output of the batch") from None
    return ((f"{path}, line {number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _parsed(place: str, line: str) -> tuple[str, StoredReply]:
    try:
        parsed: Any = json.loads(line)
    except ValueError:
        raise ConfigError(
            f"{place}: not a JSON object; the file was cut off or changed on the way: copy it again"
        ) from None
    if isinstance(parsed, dict) and "body" in parsed and "response" not in parsed:
        raise ConfigError(f"{place}: a request, not a reply; pass the file that the batch has written")
    try:
        return batch_reply(parsed)
    except ValueError as error:
        raise ConfigError(
            f"{place}: not a reply in OpenAI's batch format, {error}; pass the output of the batch"
        ) from None
