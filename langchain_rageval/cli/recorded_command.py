"""Command line of a run, stored in its journal for `rageval resume`."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path

from langchain_rageval.run.journal import Journal

COMMAND = "command"
"""Key under which a journal holds the command line that wrote it."""


def record_command(options: argparse.Namespace) -> None:
    """Store the command line without the secrets of its addresses in the journal that the options name, if any."""
    from langchain_rageval._internal.redaction import redact_secrets

    if options.journal and options.words is not None:
        words = [redact_secrets(word, word) for word in options.words]
        command = {"words": words, "folder": str(Path.cwd())}
        with closing(Journal(options.journal)) as journal:
            journal.put(COMMAND, json.dumps(command))
