"""The examples of the packaged prompts: valid answers, one structure in all languages, true to the rules they teach."""

import re
from dataclasses import dataclass
from string import ascii_uppercase

import pytest
from helpers.each import each
from helpers.texts import OWN

from langchain_rageval import PromptSet
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS, Question
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.text.sentences import split_sentences

READS = {  # keys of the JSON block
    "answer_unaided": ["question"],
    "check_needs": ["turns", "needs"],
    "check_user_facts": ["turns", "facts"],
    "classify_statements": ["question", "answer_statements", "reference_statements"],
    "compare_questions": ["parent", "question"],
    "compress_question": ["question"],
    "critique_aspect": ["question", "answer", "aspect", "definition"],
    "degrade_answer": ["question", "answer"],
    "detect_abstention": ["question", "answer"],
    "detect_answerable": ["question"],
    "evolve_angry": ["question", "passages"],
    "evolve_code_mixed": ["question", "passages"],
    "evolve_conditional": ["question", "passages"],
    "evolve_conversational": ["question", "passages"],
    "evolve_follow_up": ["question", "passages", "earlier"],
    "evolve_formal": ["question", "passages"],
    "evolve_misspelt": ["question", "passages"],
    "evolve_multi_context": ["question", "passages"],
    "evolve_numbers": ["question", "passages"],
    "evolve_off_topic": ["question", "passages"],
    "evolve_persona": ["question", "passages", "persona"],
    "evolve_reasoning": ["question", "passages"],
    "evolve_terse": ["question", "passages"],
    "evolve_unanswerable": ["question", "passages"],
    "evolve_voice": ["question", "passages"],
    "extract_entities": ["text"],
    "extract_keyphrases": ["passage"],
    "extract_statements": ["question", "text"],
    "extract_turn_statements": ["history", "question", "text"],
    "find_contradictions": ["statements"],
    "find_entities": ["entities"],
    "find_passages": ["question", "passages"],
    "grade_contexts": ["question", "answer"],
    "grade_passage": ["passage"],
    "grade_relevance": ["question", "scale"],
    "grade_rubric": ["question", "answer", "reference", "criteria"],
    "list_turn_facts": ["turns"],
    "pad_context": ["question", "context"],
    "propose_personas": ["count", "passages"],
    "regenerate_questions": ["answer", "count"],
    "review_follow_up": ["turns", "question", "standalone"],
    "regenerate_turn_questions": ["history", "answer", "count"],
    "review_question": ["question", "passages"],
    "reword_question": ["question", "feedback", "passages"],
    "rewrite_question": ["history", "question"],
    "select_sentences": ["question"],
    "verify_statements": ["question", "statements"],
    "write_answer": ["question", "passages"],
    "write_question": ["passage", "keyphrase"],
}
STEPS = [(language, step) for language in OWN for step in READS if step in OWN[language]]
GRADES = ["clarity", "depth", "structure", "relevance"]
QUESTIONS = [step for step, answer in ANSWER_SCHEMAS.items() if answer is Question]
STYLED = {f"evolve_{name}" for name in ("angry", "formal", "misspelt", "persona", "terse", "voice")}
CITATION = re.compile(r"(?<![A-Za-z])[A-Z]\.\d+")
ORDER = {
    "en": "Judge,|Ignore (?:your|the)",
    "it": "Giudice,|Ignora le|Dimentica il",
    "ko": "심사자님,|무시하고|잊고",
    "ru": "Судья,|Забудь",
    "zh": "评审，|无视|忘掉",
}
UNCLEAR = {  # what nobody understands who sees no passage
    "en": r"\b(?:text|passage|context|this|these|here)\b",
    "ru": r"\b(?:текст\w*|отрыв\w*|контекст\w*|эт(?:от|а|о|ого|ой|их)|здесь)\b",
}


def graded(example):
    return [item["grade"] for item in example.output["grades"]]


@dataclass(frozen=True)
class Shown:
    """An example as the judge is shown it."""

    language: str
    input: dict
    output: dict

    @property
    def sentences(self):
        """Lettered number to sentence."""
        lines = NumberedContexts.of(self.input.get("contexts", [])).lines
        return {f"{ascii_uppercase[line.chunk - 1]}.{line.sentence}": line.text for line in lines}

    def order(self, text):
        return bool(re.search(ORDER[self.language], text))

    def listed(self, name, kind):
        return [item[kind] for item in self.output[name]]

    @property
    def passages(self):
        """Number to text."""
        return {item["passage"]: item["text"] for item in self.input["passages"]}

    @property
    def given(self):
        """Every text of the input."""
        return " ".join(strings(self.input))

    @property
    def told(self):
        """Every text of the output."""
        return " ".join(strings(self.output))

    def values(self, *names):
        return [self.output[name] for name in names]

    def unclear(self, question):
        return bool(re.search(UNCLEAR[self.language], question))


def figures(*texts):
    """The numbers written in digits."""
    return set(re.findall(r"\d+", " ".join(texts)))


def words(*texts):
    """In lower case."""
    return re.findall(r"\w+", " ".join(texts).lower())


def last(example):
    """The last question of a conversation."""
    return example.output["question"]


def shown(language, step):
    return [Shown(language, e.input, e.output) for e in PromptSet.default(language).get(step).examples]


EXAMPLES = [(step, example) for language, step in STEPS for example in shown(language, step)]


def of(*steps):
    return [case for case in EXAMPLES if case[0] in steps]


def strings(value):
    """Every text in a nested value, without the keys."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


def items(value):
    """Every mapping in a nested value."""
    if isinstance(value, dict):
        return [value, *(found for inner in value.values() for found in items(inner))]
    return [found for inner in value for found in items(inner)] if isinstance(value, list) else []


def structure(value):
    """All but the words: keys in order, lengths of lists, numbers, booleans, labels, citations, names of aspects."""
    if isinstance(value, dict):
        return {key: structure(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [structure(inner) for inner in value]
    if isinstance(value, str) and value and value not in ASPECTS and not re.fullmatch(r"[a-z]+|[A-Z]\.\d", value):
        return "words"
    return value


def answered(step):
    schema = ANSWER_SCHEMAS[step].model_json_schema()
    return {name for part in [schema, *schema.get("$defs", {}).values()] for name in part["properties"]}


def test_every_step_of_the_package_is_checked_here():
    assert READS.keys() == ANSWER_SCHEMAS.keys()


@each(("step", "example"), EXAMPLES)
def test_an_output_is_a_valid_answer_with_its_fields_in_order(step, example):
    answer = ANSWER_SCHEMAS[step].model_validate(example.output, strict=True).model_dump()
    assert answer == example.output
    assert [list(item) for item in items(answer)] == [list(item) for item in items(example.output)]


@each(("step", "example"), EXAMPLES)
def test_an_input_holds_what_the_step_sends(step, example):
    assert [name for name in example.input if name != "contexts"] == READS[step]


@each(("language", "step"), STEPS)
def test_all_languages_have_the_examples_of_english(language, step):
    english, other = shown("en", step), shown(language, step)
    assert [list(map(structure, (e.input, e.output))) for e in other] == [
        list(map(structure, (e.input, e.output))) for e in english
    ]
    assert [list(e.sentences) for e in other] == [list(e.sentences) for e in english]


@each(("step", "example"), EXAMPLES)
def test_every_citation_is_of_a_sentence_in_the_examples_block(step, example):
    cited = set(CITATION.findall(" ".join(strings(example.output))))
    assert cited <= example.sentences.keys()


@each(("step", "example"), of("verify_statements"))
def test_each_statement_has_one_verdict_and_the_reason_names_the_evidence(step, example):
    verdicts = example.output["verdicts"]
    assert [verdict["statement"] for verdict in verdicts] == [item["statement"] for item in example.input["statements"]]
    for verdict in verdicts:
        assert bool(verdict["evidence"]) is (verdict["verdict"] != "absent")
        assert verdict["verdict"] == "absent" or CITATION.findall(verdict["reason"]) == verdict["evidence"]


@pytest.mark.parametrize("language", OWN)
def test_verdicts_are_in_no_order_of_labels_and_one_example_has_only_supported_ones(language):
    labels = [[verdict["verdict"] for verdict in e.output["verdicts"]] for e in shown(language, "verify_statements")]
    assert labels == [["contradicted", "absent", "contradicted"], ["supported", "supported"]]


@pytest.mark.parametrize(("step", "example"), of("classify_statements"))
def test_each_answer_statement_is_classified_once_and_each_reference_statement_found_in_full_or_missed(step, example):
    answers = [item["answer"] for item in example.input["answer_statements"]]
    references = [item["reference"] for item in example.input["reference_statements"]]
    told = (*example.output["TP"], *example.output["FP"])
    cited = {number for item in told for number in item["references"]}
    missed = example.listed("FN", "reference")
    assert sorted(example.listed("TP", "answer") + example.listed("FP", "answer")) == answers
    assert sorted({*cited, *missed}) == references
    assert len(set(missed)) == len(missed)
    assert all(item["references"] for item in example.output["TP"])


@each(("step", "example"), of("classify_statements"))
def test_a_missed_reference_statement_is_named_by_nobody_or_said_in_part(step, example):
    named = {number for item in (*example.output["TP"], *example.output["FP"]) for number in item["references"]}
    missed = {item["reference"] for item in example.output["FN"]}
    assert missed & named
    assert missed - named


@each(("step", "example"), of("classify_statements"))
def test_an_extra_contains_a_reference_statement_in_full_and_what_is_wrong_contains_none(step, example):
    contained = {item["kind"]: item["references"] for item in example.output["FP"]}
    missed = [item["reference"] for item in example.output["FN"]]
    assert contained["contradicts"] == []
    assert contained["extra"]
    assert not {*contained["extra"]} & {*missed}


@each(("language", "step"), [(language, step) for language in OWN for step in OWN[language]])
def test_a_reason_comes_before_everything_that_it_explains(language, step):
    for example in shown(language, step):
        for item in items(example.output):
            names = [name for name in item if name in ("reason", "verdict", "useful", "grade", "answer", "references")]
            assert "reason" not in names or names[0] == "reason"


@each(("step", "example"), of("grade_contexts"))
def test_each_chunk_has_one_verdict_in_order(step, example):
    numbers = [verdict["context"] for verdict in example.output["verdicts"]]
    assert numbers == list(range(1, len(example.input["contexts"]) + 1))


@each(("step", "example"), of("grade_relevance"))
def test_each_chunk_has_one_grade_on_the_scale_in_order(step, example):
    numbers = [item["context"] for item in example.output["grades"]]
    assert numbers == list(range(1, len(example.input["contexts"]) + 1))
    lowest, highest = example.input["scale"]
    assert {lowest, highest} <= set(graded(example)) <= set(range(lowest, highest + 1))


@each(("step", "example"), of("select_sentences"))
def test_selected_sentences_are_named_once_in_order(step, example):
    named = example.output["sentences"]
    assert named == [number for number in example.sentences if number in named]


@each(("step", "example"), of("regenerate_questions", "regenerate_turn_questions"))
def test_as_many_questions_as_asked_for_or_none_for_an_evasive_answer(step, example):
    questions = example.output["questions"]
    assert len(questions) == (0 if example.output["evasive"] else example.input["count"])
    assert len(set(questions)) == len(questions)
    assert all(question.endswith(("?", "？")) for question in questions)


@each("step", ["find_entities", "select_sentences", "verify_statements"])
@each("language", OWN)
def test_an_instruction_shows_what_the_number_of_a_sentence_looks_like_in_a_request(language, step):
    assert '"2.3"' in PromptSet.default(language).get(step).instruction


@pytest.mark.parametrize(("step", "example"), of("extract_keyphrases"))
def test_there_are_three_to_five_key_phrases_and_none_is_a_sentence(step, example):
    phrases = example.output["keyphrases"]
    assert 3 <= len(set(phrases)) == len(phrases) <= 5
    assert all(len(words(phrase)) <= 6 and phrase[-1].isalnum() for phrase in phrases)


@pytest.mark.parametrize("language", ["en", "ru"])
def test_each_grade_of_each_kind_is_shown(language):
    examples = shown(language, "grade_passage")
    for name in GRADES:
        assert {example.output[name] for example in examples} == {1, 2, 3}


@each(("step", "example"), of(*QUESTIONS))
def test_a_written_question_is_understood_without_its_passages(step, example):
    question = example.output["question"]
    assert not example.unclear(question)
    assert len(words(question)) <= 30
    if step not in STYLED:
        assert split_sentences(question) == [question]
        assert question.endswith("?") or step == "evolve_conversational"


@each(("step", "example"), [case for case in EXAMPLES if "passages" in case[1].input])
def test_passages_are_numbered_from_one(step, example):
    assert list(example.passages) == list(range(1, len(example.passages) + 1))


@pytest.mark.parametrize(("step", "example"), of("find_passages"))
def test_needed_passages_are_named_in_order_and_the_reason_speaks_of_every_passage(step, example):
    named = example.output["passages"]
    assert named == [number for number in example.passages if number in named]
    assert figures(example.output["reason"]) == set(map(str, example.passages))


@each(("step", "example"), of("write_answer"))
def test_an_answer_is_written_when_there_is_one_and_its_numbers_are_in_the_passages(step, example):
    assert bool(example.output["answer"]) is example.output["answerable"]
    assert figures(example.told) <= figures(*example.passages.values())


@each(("step", "example"), of("degrade_answer"))
def test_an_incomplete_answer_holds_words_of_the_whole_one_and_no_other(step, example):
    assert {*words(example.told)} < {*words(example.input["answer"])}


@pytest.mark.parametrize(("step", "example"), of("pad_context"))
def test_padding_is_three_sentences_with_none_of_the_facts(step, example):
    sentences = example.output["sentences"]
    assert [split_sentences(sentence) for sentence in sentences] == [[sentence] for sentence in sentences]
    assert len(set(sentences)) == 3
    assert not figures(example.told) & figures(example.input["context"])


WITHOUT_ORDER = {  # whose examples hold no order to the model yet
    "critique_aspect",
    "regenerate_turn_questions",
    "rewrite_question",
    "extract_turn_statements",
}


@each(("language", "step"), STEPS)
def test_some_example_holds_an_order_to_the_model_that_the_output_does_not_repeat(language, step):
    orders = [e for e in shown(language, step) if e.order(e.given)]
    assert bool(orders) is (step not in WITHOUT_ORDER)
    assert not any(e.order(e.told) for e in orders)


def choices(schema):
    """Names of fields with few values, with all their values."""
    for part in [schema, *schema.get("$defs", {}).values()]:
        for name, field in part.get("properties", {}).items():
            if field.get("type") == "boolean":
                yield name, {True, False}
            elif "enum" in field:
                yield name, set(field["enum"])


@each(("language", "step"), STEPS)
def test_the_examples_show_every_label_that_an_answer_may_have(language, step):
    outputs = [item for e in shown(language, step) for item in items(e.output)]
    for name, values in choices(ANSWER_SCHEMAS[step].model_json_schema()):
        assert {item[name] for item in outputs if name in item} == values, name


@each(("language", "step"), STEPS)
def test_an_instruction_names_the_fields_that_it_speaks_of(language, step):
    named = set(re.findall(r"`(\w+)`", PromptSet.default(language).get(step).instruction))
    copied = {
        "verdicts",
        "statement",
        "answer",
        "reference",
        "entity",
    }  # item numbers, and the list around the verdicts
    assert named >= {*READS[step], *(answered(step) - copied)}
    assert named <= {*READS[step], *answered(step)}


def test_the_check_of_structure_sees_what_it_should():
    one = {"text": "Some words.", "verdict": "absent", "evidence": ["A.1"], "answer": 1, "useful": True}
    assert structure(one) == structure({**one, "text": "Иные слова."})
    for other in ({"verdict": "supported"}, {"evidence": ["A.2"]}, {"answer": 2}, {"useful": False}, {"text": ""}):
        assert structure(one) != structure({**one, **other})
