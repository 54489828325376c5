"""Test-set generation: generate questions with reference answers from documents."""

from langchain_rageval.data.documents import from_haystack, load_documents
from langchain_rageval.testset.candidate import Candidate, Passage, Trial
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolutions import (
    Evolution,
    audience,
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
    thematic,
    unanswerable,
)
from langchain_rageval.testset.filters import closed_book_filter, evolution_filter, passage_filter, question_filter
from langchain_rageval.testset.generator import TestsetGenerator
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.testset.testset import Testset
from langchain_rageval.testset.writing import (
    answer,
    check_answer,
    compress,
    find_passages,
    keyphrases,
    propose_personas,
    seed_question,
)

__all__ = ["Candidate", "Docstore", "Evolution", "Passage", "Testset", "TestsetGenerator", "TestsetRow", "Trial"]
__all__ += ["audience", "conditional", "conversational", "evolution", "follow_up", "multi_context", "numbers"]
__all__ += ["off_topic", "persona", "reasoning", "simple", "style", "thematic", "unanswerable"]
__all__ += ["answer", "check_answer", "compress", "find_passages", "keyphrases", "propose_personas", "seed_question"]
__all__ += ["closed_book_filter", "evolution_filter", "passage_filter", "question_filter"]
__all__ += ["from_haystack", "load_documents"]
