"""Reviewed question: the state of a candidate between its first review and its evolution."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, ClassVar

from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict

from langchain_rageval.run.traced import Traced
from langchain_rageval.testset.candidate import Candidate


class ReviewedQuestion(Traced[Candidate, Candidate]):
    """Step of one attempt that keeps the candidate whose first question was accepted; it does not appear in traces.

    Attributes:
        tree: True to give the candidate the id of a tree: a hash of its passage and question.
        kept: list that receives the candidate, if it has a question and is not rejected.
    """

    in_traces: ClassVar[bool] = False
    model_config = ConfigDict(arbitrary_types_allowed=True)

    tree: bool
    kept: Any

    def _do(self, input: Candidate, config: RunnableConfig) -> Candidate:
        if input.rejected or not input.question.strip():
            return input
        candidate = input.replace(tree_id=_tree_id(input)) if self.tree else input
        self.kept.append(candidate)
        return candidate

    async def _ado(self, input: Candidate, config: RunnableConfig) -> Candidate:
        return self._do(input, config)


def _tree_id(candidate: Candidate) -> str:
    content = json.dumps([candidate.question, candidate.passages[0].id])
    return "tree-" + blake2b(content.encode(), digest_size=8).hexdigest()
