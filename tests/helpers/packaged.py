"""`OWN`: the steps for which the package has prompts, by language."""

from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS

LANGUAGES = ["en", "it", "ko", "ru", "zh"]
JUDGING = {
    "check_needs",
    "check_user_facts",
    "classify_statements",
    "critique_aspect",
    "detect_abstention",
    "detect_answerable",
    "extract_entities",
    "extract_statements",
    "extract_turn_statements",
    "find_contradictions",
    "find_entities",
    "grade_contexts",
    "grade_relevance",
    "grade_rubric",
    "list_turn_facts",
    "regenerate_questions",
    "regenerate_turn_questions",
    "rewrite_question",
    "select_sentences",
    "verify_statements",
}
OWN = {language: sorted(ANSWER_SCHEMAS if language in ("en", "ru") else JUDGING) for language in LANGUAGES}
