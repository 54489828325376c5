"""Judge steps (questions to a judge) that metrics share. This module exports the classes of the judge's answers."""

from pydantic import BaseModel

from langchain_rageval.prompts import answer_schemas
from langchain_rageval.prompts.answer_schemas import *  # noqa: F403

__all__ = sorted(
    name
    for name, kind in vars(answer_schemas).items()
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not BaseModel
)
