"""Evaluation whose requests and replies are exchanged as files, for models on a machine without network."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_rageval.evaluation.batched_evaluation import BatchedEvaluation
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric, prepare_samples
from langchain_rageval.report.report import Report
from langchain_rageval.run.batch.openai_batches import recorded_openai
from langchain_rageval.run.batch.recorder import Recorder
from langchain_rageval.run.batch.reply_store import ReplyStore
from langchain_rageval.run.batch.wave_files import FileWaves, WaveFile, WaveWritten
from langchain_rageval.run.journal import Journal

_SUPPORTED = "requests are written for models of ChatOpenAI, such as vllm:MODEL and openai:MODEL"


def evaluate_from_files(
    samples: Any, metrics: Sequence[AnyMetric], journal: Journal, path: Path | None, *, strict: bool = False
) -> Report | WaveFile:
    """Score samples as far as replies are in the journal.

    Args:
        samples: as for `evaluate`.
        metrics: as for `evaluate`.
        journal: holds the replies and the finished scores.
        path: path of the file for the next requests; None for that of the last wave with the next number.
        strict: as for `evaluate`.

    Returns:
        The report if all replies are known, otherwise the file of the next requests.

    Raises:
        ConfigError: if a judge is not supported.
    """
    job = Evaluation.of(metrics, {"journal": journal, "strict": strict})
    source = prepare_samples(samples, job.metrics, strict=strict)
    recorder = Recorder(ReplyStore(journal, keeps_refusals=True), [recorded_openai], _SUPPORTED, live=False)
    job = BatchedEvaluation.recorded(job, recorder, FileWaves(recorder, journal, path))
    rows = []
    try:
        with closing(job.rows(source)) as finished:
            for row in finished:
                rows.append(row)
    except WaveWritten as written:
        return written.wave
    return job.build_report(rows)
