"""Entities of the references, and those that the contexts name."""

import re

from helpers.scripted import answering, entities, found_in, human_of, scripted

from langchain_rageval import Judge, Sample
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.steps.entities import extract_entities, find_entities

SAMPLE = Sample(question="Кто основал Мюнхен?", answer="Никто.", references=["Генрих Лев.", " ", "Лев, 1158 год."])


def found(judge, sample=SAMPLE):
    return extract_entities(judge).invoke({"sample": sample})["reference_entities"]


def test_each_reference_that_is_not_blank_is_read_alone():
    judge = scripted(entities("Генрих Лев"), entities("Лев", "1158 год"))
    assert found(judge) == ["Генрих Лев", "Лев", "1158 год"]
    assert judge.inputs == [{"text": "Генрих Лев."}, {"text": "Лев, 1158 год."}]


def test_spellings_of_one_entity_count_once_and_the_first_stays():
    judge = scripted(entities("Семён Лев", " ", "СЕМЕН  ЛЕВ"), entities("семен лев ", "Изар"))
    assert found(judge) == ["Семён Лев", "Изар"]


def test_a_judge_that_repeats_itself_gives_no_more_entities_than_the_texts_can_hold():
    sample = SAMPLE.model_copy(update={"references": ["Генрих Лев.", "Лев основал Мюнхен в 1158 году."]})
    judge = scripted(entities(*map(str, range(1_000))), entities("Лев", *["лев"] * 1_000, "1158 год"))
    state = extract_entities(judge).invoke({"sample": sample})
    assert state["reference_entities"] == [*map(str, range(10)), "Лев", "1158 год"]
    assert state["dropped_entities"] == 990


SAMPLE_OF_FIND_ENTITIES = Sample(question="Who?", answer="X.", contexts=["Anna came. Bert left.", "Carl stayed."])
NAMES = ["Anna", "Bert", "Carl", "Dora"]


def verdicts(judge, names=NAMES, sample=SAMPLE_OF_FIND_ENTITIES):
    state = {"sample": sample, "reference_entities": list(names)}
    return find_entities(judge).invoke(state)["entity_verdicts"]


def told(findings):
    return [(f.verdict, f.cites) for f in findings if f.kind == "entity"]


def test_the_judge_reads_the_numbered_entities_and_the_contexts():
    judge = scripted(found_in({1: ["1.1"], 3: ["2.1"]}))
    findings = verdicts(judge)
    assert judge.inputs == [{"entities": [{"entity": n, "text": name} for n, name in enumerate(NAMES, 1)]}]
    assert human_of(judge.asked[0]).startswith("## Contexts\n[1]\n[1.1] Anna came.\n[1.2] Bert left.\n[2]\n[2.1] Carl")
    assert [(f.kind, f.number, f.text) for f in findings] == [("entity", n, name) for n, name in enumerate(NAMES, 1)]
    assert told(findings) == [("found", ["1.1"]), ("not found", []), ("found", ["2.1"]), ("not found", [])]


def test_without_entities_nobody_is_asked():
    assert verdicts(scripted(), names=[]) == []


def test_unknown_numbers_are_dropped_and_doubles_united():
    judge = scripted(
        '{"found": [{"entity": 1, "evidence": ["1.1"]}, {"entity": 9, "evidence": ["1.1"]},'
        '{"entity": 1, "evidence": ["[2.1]", "9.9", "1.1"]}]}'
    )
    assert told(verdicts(judge)) == [("found", ["1.1", "2.1"]), *[("not found", [])] * 3]


def test_what_is_found_nowhere_is_asked_about_again_alone_numbered_from_one():
    judge = scripted(found_in({1: ["1.1"], 2: ["7.7"], 4: []}), found_in({1: ["1.2"]}))
    assert told(verdicts(judge)) == [("found", ["1.1"]), ("found", ["1.2"]), ("not found", []), ("not found", [])]
    assert judge.inputs[1] == {"entities": [{"entity": 1, "text": "Bert"}, {"entity": 2, "text": "Dora"}]}


def test_asked_again_once_the_judges_word_stands():
    judge = scripted(found_in({2: []}), found_in({1: ["7.7"], 2: ["1.1"]}))
    assert told(verdicts(judge))[:2] == [("not found", []), ("found", [])]
    assert len(judge.asked) == 2


def finding_by_string(messages):
    human = human_of(messages)
    lines = [line for line in human.splitlines() if re.match(r"\[\d+\.\d+\]", line)]
    listed = {}
    for item in read_inputs(human)["entities"]:
        cited = [line[1 : line.index("]")] for line in lines if item["text"] in line]
        if cited:
            listed[item["entity"]] = cited
    return found_in(listed)


def test_slices_and_windows_find_what_one_call_finds():
    whole, parts = answering(finding_by_string), answering(finding_by_string)
    expected = verdicts(whole)
    assert verdicts(Judge(parts, max_statements=3, max_context_tokens=5)) == expected
    assert [f.verdict for f in expected] == ["found", "found", "found", "not found"]
    assert (len(whole.asked), len(parts.asked)) == (1, 2 * 3)


def test_evidence_of_windows_is_united():
    sample = SAMPLE_OF_FIND_ENTITIES.model_copy(update={"contexts": ["Anna came. Anna left.", "Anna stayed."]})
    (finding,) = verdicts(Judge(answering(finding_by_string), max_context_tokens=5), ["Anna"], sample)
    assert finding.cites == ["1.1", "1.2", "2.1"]


def test_each_draw_is_a_call_and_the_majority_holds_with_its_evidence():
    judge = scripted(found_in({1: ["1.1"]}), found_in({1: ["1.2"], 2: ["1.2"]}), found_in({3: ["2.1"]}))
    findings = verdicts(Judge(judge, draws=3))
    assert told(findings) == [("found", ["1.1", "1.2"]), *[("not found", [])] * 3]
    agreements = [(f.number, f.text, f.verdict) for f in findings if f.kind == "agreement"]
    assert agreements == [(1, "Anna", "0.67"), (2, "Bert", "0.67"), (3, "Carl", "0.67"), (4, "Dora", "1.00")]
