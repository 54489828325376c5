"""LoggingSink: write scores to a log."""

from __future__ import annotations

import logging

from langchain_rageval.data.schema import Row


class LoggingSink:
    """Logs each score: run id, metric, and the value with its reason, or why there is no value.

    The attribute `rageval` of the log record holds `run_id`, `metric`, `value` and `comment` as a mapping, for
    formatters that write JSON. Reasons may quote the answer; question, answer and contexts are not logged.

    Args:
        logger: logger to write to; by default `langchain_rageval.scores`.
        level: level of scores; failures are logged as warnings.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or logging.getLogger("langchain_rageval.scores")
        self._level = level

    def __repr__(self) -> str:
        """Return the sink as text: its class and the name of the logger."""
        return f"LoggingSink({self._logger.name!r})"

    def __call__(self, row: Row) -> None:
        """Log the scores of a row."""
        run_id = str(row.sample.metadata.get("run_id", row.sample.id))
        for score in row.scores.values():
            fields = {"run_id": run_id, "metric": score.metric, "value": score.value, "comment": score.comment}
            level = max(self._level, logging.WARNING) if score.failure else self._level
            self._logger.log(level, "run %s: %s", run_id, score, extra={"rageval": fields})
