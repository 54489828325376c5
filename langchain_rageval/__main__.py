"""Entry point of `python -m langchain_rageval`, which equals `rageval`."""

import sys

from langchain_rageval.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
