"""Test-set generation: the generator, its steps and evolutions, and their data types."""

from langchain_rageval.testset.answer import answer
from langchain_rageval.testset.candidate import Candidate, Trial
from langchain_rageval.testset.closed_book_filter import closed_book_filter
from langchain_rageval.testset.compress import compress
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolution_filter import evolution_filter
from langchain_rageval.testset.evolutions import (
    Evolution,
    conditional,
    conversational,
    evolution,
    multi_context,
    reasoning,
    simple,
    unanswerable,
)
from langchain_rageval.testset.find_passages import find_passages
from langchain_rageval.testset.generator import TestsetGenerator
from langchain_rageval.testset.keyphrases import keyphrases
from langchain_rageval.testset.passage import Passage
from langchain_rageval.testset.passage_filter import passage_filter
from langchain_rageval.testset.question_filter import question_filter
from langchain_rageval.testset.readers import load_documents
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.testset.seed_question import seed_question
from langchain_rageval.testset.testset import Testset

__all__ = [
    "Candidate",
    "Docstore",
    "Evolution",
    "Passage",
    "Testset",
    "TestsetGenerator",
    "TestsetRow",
    "Trial",
    "answer",
    "closed_book_filter",
    "compress",
    "conditional",
    "conversational",
    "evolution",
    "evolution_filter",
    "find_passages",
    "keyphrases",
    "load_documents",
    "multi_context",
    "passage_filter",
    "question_filter",
    "reasoning",
    "seed_question",
    "simple",
    "unanswerable",
]
