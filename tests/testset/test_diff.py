"""Diff of two test sets."""

from langchain_rageval.testset import Testset
from langchain_rageval.testset.row import TestsetRow


def row(name, **fields):
    values = {"question": f"Вопрос {name}?", "contexts": ["Поле."], "reference": "Ответ.", "evolution": "simple"}
    return TestsetRow(**{"id": name, **values, **fields})


OLD = Testset([row("a"), row("b"), row("c"), row("d")])
NEW = Testset([row("a"), row("b", reference="Другой."), row("e"), row("x", question="Вопрос d?")], number=2)


def test_rows_are_paired_by_id_and_else_by_question():
    difference = OLD.diff(NEW)
    assert difference.added == [NEW[2]]
    assert difference.dropped == [OLD[2]]
    assert difference.changed == {"b": {"reference": ("Ответ.", "Другой.")}}
    assert difference.same == 2
    assert bool(difference)


def test_the_text_lists_rows_and_fields():
    assert repr(OLD.diff(NEW)) == (
        f"{OLD.version} -> {NEW.version}: 1 added, 1 dropped, 1 changed, 2 the same\n"
        "- c Вопрос c?\n"
        "+ e Вопрос e?\n"
        "~ b reference: Ответ. -> Другой."
    )


def test_the_html_escapes_texts():
    hostile = Testset([row("a", question="<script>alert(1)</script>")])
    html = Testset([]).diff(hostile)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_equal_test_sets_have_no_difference_whatever_their_histories():
    same = OLD.diff(Testset([row("a"), row("b"), row("c"), row("d")]))
    assert (bool(same), same.same, same.before == same.after) == (False, 4, True)


def test_the_version_depends_on_questions_and_answers():
    versions = {t.version for t in (OLD, Testset(OLD.rows[:3]), Testset([*OLD.rows[:3], row("d", reference="!")]))}
    assert len(versions) == 3
    assert Testset([row("a", passage_ids=["p"])]).version == Testset([row("a")]).version


def test_the_json_data_names_rows_by_id():
    assert OLD.diff(NEW).to_dict() == {
        "before": OLD.version,
        "after": NEW.version,
        "added": ["e"],
        "dropped": ["c"],
        "changed": {"b": {"reference": {"before": "Ответ.", "after": "Другой."}}},
        "same": 2,
    }
