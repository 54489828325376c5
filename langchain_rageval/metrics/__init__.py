"""The metrics, one per file; a new one is its file, its prompts, its test, and a line here."""

from collections.abc import Mapping

BUILDERS: Mapping[str, str] = {
    "faithfulness": "langchain_rageval.metrics.faithfulness",
}
"""Name of each builder to the module that holds it; read by the command line."""
