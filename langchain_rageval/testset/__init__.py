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
    follow_up,
    multi_context,
    numbers,
    off_topic,
    persona,
    reasoning,
    simple,
    style,
    unanswerable,
)
from langchain_rageval.testset.find_passages import find_passages
from langchain_rageval.testset.foreign_documents import from_haystack
from langchain_rageval.testset.generator import TestsetGenerator
from langchain_rageval.testset.keyphrases import keyphrases
from langchain_rageval.testset.passage import Passage
from langchain_rageval.testset.passage_filter import passage_filter
from langchain_rageval.testset.propose_personas import propose_personas
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
    "follow_up",
    "from_haystack",
    "keyphrases",
    "load_documents",
    "multi_context",
    "numbers",
    "off_topic",
    "passage_filter",
    "persona",
    "propose_personas",
    "question_filter",
    "reasoning",
    "seed_question",
    "simple",
    "style",
    "unanswerable",
]
