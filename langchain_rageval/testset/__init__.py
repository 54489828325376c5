"""Making test sets: the generator, its steps by everyday names, and what they work on."""

from langchain_rageval.testset.answer_unaided import closed_book_filter
from langchain_rageval.testset.candidate import Candidate, Trial
from langchain_rageval.testset.compare_questions import evolution_filter
from langchain_rageval.testset.compress_question import compress
from langchain_rageval.testset.docstore import Docstore
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
from langchain_rageval.testset.extract_keyphrases import keyphrases
from langchain_rageval.testset.generator import TestsetGenerator
from langchain_rageval.testset.grade_passage import passage_filter
from langchain_rageval.testset.needed_passages import find_passages
from langchain_rageval.testset.passage import Passage
from langchain_rageval.testset.readers import load_documents
from langchain_rageval.testset.review_question import question_filter
from langchain_rageval.testset.rows import Testset, TestsetRow
from langchain_rageval.testset.write_answer import answer
from langchain_rageval.testset.write_question import seed_question

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
