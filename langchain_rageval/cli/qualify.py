"""`rageval qualify`: whether a judge can be believed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.evaluate import pairs_in
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.trust.fitness import STEPS_OF

if TYPE_CHECKING:
    from langchain_rageval.trust.qualification import Qualification
