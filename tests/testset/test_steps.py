"""Steps of the generator, one by one: requests, treatment of answers, and candidates that pass unchanged."""

import pytest
from helpers.each import each, error_of
from helpers.scripted import scripted
from helpers.writers import Ring, Writer, passage

from langchain_rageval import ConfigError, JudgeOutputError, testset
from langchain_rageval.steps import (
    DegradedAnswer,
    Keyphrases,
    NeededPassages,
    PassageGrades,
    Question,
    QuestionComparison,
    QuestionReview,
    ReferenceAnswer,
)
from langchain_rageval.testset import (
    Candidate,
    Docstore,
    answer,
    closed_book_filter,
    conditional,
    evolution,
    evolution_filter,
    find_passages,
    keyphrases,
    multi_context,
    passage_filter,
    question_filter,
    reasoning,
    seed_question,
    simple,
)

FRESH = Candidate(passages=[passage(0)])
ASKED = FRESH.replace(keyphrase="поле").with_question("Что такое поле?", "seed")
FINE, UNCLEAR = QuestionReview(feedback="", standalone=True, answerable=True), "Назови закон."
GRADED = {"clarity": 2, "depth": 2, "structure": 2}
SHOWN = {"question": ASKED.question, "passages": [{"passage": 1, "text": FRESH.passages[0].text}]}


def kinds(candidate):
    return [(trial.kind, trial.accepted) for trial in candidate.history]


@each(
    "name",
    [
        *("passage_filter", "keyphrases", "seed_question", "question_filter", "compress", "evolution_filter"),
        *("find_passages", "answer", "check_answer", "closed_book_filter", "reasoning"),
    ],
)
async def test_a_rejected_candidate_passes_through_without_a_call(name):
    judge, build = scripted(), getattr(testset, name)
    lost = ASKED.reject("question rejected")
    assert build(judge).invoke(lost) == await build(judge).ainvoke(lost) == lost
    assert judge.asked == []


# The passage


@each(
    ("relevance", "threshold", "rejected"),
    [(2, 2.0, None), (1, 2.0, "passage rejected"), (2, 1.9, None), (2, 2.1, "passage rejected"), (1, 1.75, None)],
)
def test_a_passage_passes_whose_mean_grade_reaches_the_threshold(relevance, threshold, rejected):
    judge = scripted(PassageGrades(reason="ясно", relevance=relevance, **GRADED))
    made = passage_filter(judge, threshold=threshold).invoke(FRESH)
    assert (made.rejected, made.grade) == (rejected, 2 - (2 - relevance) / 4)
    assert (kinds(made), made.history[0].feedback) == ([("passage", rejected is None)], "ясно")


def test_a_passage_is_graded_once():
    judge = scripted()
    assert passage_filter(judge).invoke(FRESH.replace(grade=2.5)).rejected is None
    assert passage_filter(judge).invoke(FRESH.replace(grade=1.5)).rejected == "passage rejected"
    assert judge.asked == []


def test_each_draw_of_a_passage_takes_another_key_phrase_until_there_is_none():
    phrases = ["а", "б", "в"]
    judge = scripted(Keyphrases(keyphrases=[" а ", "б", "", "в", "а"]))
    first = keyphrases(judge).invoke(FRESH)
    assert first.keyphrases == phrases
    drawn = [keyphrases(scripted()).invoke(first.replace(draw=draw)) for draw in range(4)]
    assert sorted(candidate.keyphrase for candidate in drawn[:3]) == phrases
    assert drawn[3].rejected == "no key phrase left"
    assert len(judge.asked) == 1


def test_a_bad_reply_about_a_passage_is_asked_again():
    judge = scripted(Keyphrases(keyphrases=[" "]), Keyphrases(keyphrases=list("абвгдеж")))
    assert keyphrases(judge).invoke(FRESH).keyphrases == list("абвгд")  # at most five
    assert "there is no key phrase" in judge.asked[1][-1].text
    judge = scripted(*(PassageGrades(reason="", relevance=n, **GRADED) for n in (4, 3)))
    assert passage_filter(judge).invoke(FRESH).grade == 2.25
    assert "relevance: each grade is 1, 2 or 3" in judge.asked[1][-1].text


# The question


def test_the_seed_question_is_about_the_key_phrase_of_the_passage_or_the_first_of_several():
    for given in ({"keyphrase": "поле", "keyphrases": ["лес"]}, {"keyphrases": ["поле", "лес"]}):
        judge = scripted(Question(question=" Что такое поле? "))
        made = seed_question(judge).invoke(FRESH.replace(**given))
        assert (made.question, kinds(made)) == ("Что такое поле?", [("seed", True)])
        assert judge.inputs == [{"passage": FRESH.passages[0].text, "keyphrase": "поле"}]


def test_a_blank_question_is_asked_again_and_then_a_failure():
    with pytest.raises(JudgeOutputError, match="the question is blank") as caught:
        seed_question(scripted(*[Question(question=" ")] * 3)).invoke(FRESH.replace(keyphrase="поле"))
    assert caught.value.step == "write_question"


def test_a_good_question_passes_with_one_call():
    judge = scripted(FINE)
    made = question_filter(judge, scripted()).invoke(ASKED)
    assert (made.rejected, made.question, kinds(made)) == (None, ASKED.question, [("seed", True)])
    assert judge.inputs == [SHOWN]


@each("before", [FRESH, FRESH.with_trial("passage", feedback="2 / 2 / 2")])
def test_without_a_writer_what_the_critic_rejects_is_rejected_at_once_also_if_no_step_wrote_it(before):
    unclear = QuestionReview(feedback=UNCLEAR, standalone=False, answerable=True)
    made = question_filter(scripted(unclear)).invoke(ASKED)
    assert (made.rejected, kinds(made), made.history[0].feedback) == ("question rejected", [("seed", False)], UNCLEAR)
    own = before.replace(question="Что такое оно?", parent="Что?")
    made = question_filter(scripted(unclear)).invoke(own)
    assert (made.rejected, kinds(made)) == ("question rejected", [*kinds(before), ("given", False)])
    assert (made.history[-1].question, made.history[-1].feedback) == (own.question, UNCLEAR)
    shallow = QuestionComparison(reason="Столько же.", deeper=False, broader=False)
    assert evolution_filter(scripted(shallow)).invoke(own).history[-1].feedback == "Столько же."


def test_a_rejected_question_is_rewritten_by_the_feedback_and_reviewed_again():
    critic = scripted(QuestionReview(feedback=UNCLEAR, standalone=False, answerable=True), FINE)
    writer = scripted(Question(question="Что такое поле по закону?"))
    store = Docstore(["Первый.", "Второй."], splitter=False)
    made = question_filter(critic, writer, store).invoke(ASKED.replace(passages=store.passages[:1]))
    assert (made.rejected, made.question) == (None, "Что такое поле по закону?")
    assert kinds(made) == [("seed", False), ("rewrite", True)]
    assert writer.inputs[0]["feedback"] == UNCLEAR
    assert len(writer.inputs[0]["passages"]) == 1  # it was answered, so no neighbour is added


@each("rewrites", [0, 1, 3])
def test_a_question_is_rejected_after_the_maximum_number_of_rewrites(rewrites):
    writer = Writer(QuestionReview=lambda *_: {"feedback": UNCLEAR, "standalone": False, "answerable": True})
    made = question_filter(writer.model, writer.model, max_rewrites=rewrites).invoke(ASKED)
    assert made.rejected == "question rejected"
    assert writer.calls == {"QuestionReview": rewrites + 1} | ({"Question": rewrites} if rewrites else {})
    assert kinds(made) == [("seed", False), *[("rewrite", False)] * rewrites]


def test_the_neighbouring_passage_is_added_when_the_passages_do_not_answer():
    store = Docstore(["Первый.", "Второй.", "Третий."], splitter=False)
    asked = Candidate(passages=[store.passages[1]]).with_question("Что первое?", "seed")
    unanswered = QuestionReview(feedback="Не сказано.", standalone=True, answerable=False)
    critic, writer = scripted(unanswered, unanswered, FINE), scripted(*[Question(question="Что?")] * 2)
    made = question_filter(critic, writer, store).invoke(asked)
    assert [p.text for p in made.passages] == ["Второй.", "Первый.", "Третий."]
    assert [len(inputs["passages"]) for inputs in critic.inputs] == [1, 2, 3]


def test_an_unanswerable_question_passes_if_the_passages_do_not_answer_it():
    asked = ASKED.replace(answerable=False)
    fine = QuestionReview(feedback="", standalone=True, answerable=False)
    assert question_filter(scripted(fine)).invoke(asked).rejected is None
    writer = scripted()
    assert question_filter(scripted(FINE), writer).invoke(asked).rejected == "the documents answer it"
    assert writer.asked == []


def test_a_question_whose_rewrite_is_unusable_is_rejected_with_the_problem():
    critic = scripted(QuestionReview(feedback=UNCLEAR, standalone=False, answerable=True))
    writer = scripted(*[Question(question="Что? Где? Когда?")] * 3)
    made = question_filter(critic, writer).invoke(ASKED)
    assert (made.rejected, made.question) == ("question rejected", ASKED.question)
    assert kinds(made) == [("seed", False), ("rewrite", False)]
    assert (made.history[-1].question, made.objection) == ("Что? Где? Когда?", "these are several questions: ask one")


OFF_SCALE, NOT_WHOLE = "threshold must be a number from 1 to 3", "max_rewrites must be a whole number of at least 0"
OFF_SHARE = "threshold must be a number above 0 and at most 1"
NO_STEP = "simple leaves the question as it is, so it has no step: call another evolution"
NO_STORE = "multi_context adds passages of the documents: pass docstore=Docstore(documents)"


@each(
    ("build", "options", "message"),
    [
        *((passage_filter, {"threshold": one}, OFF_SCALE) for one in (0.9, 3.1, "2", float("nan"))),
        *((question_filter, {"max_rewrites": one}, NOT_WHOLE) for one in (-1, 1.5, True)),
        (closed_book_filter, {"threshold": 0}, OFF_SHARE),
        (simple, {}, NO_STEP),
        (multi_context, {}, NO_STORE),
    ],
)
def test_a_step_with_a_wrong_option_is_refused(build, options, message):
    given = "".join(f", got {value!r}" for value in options.values())
    assert str(error_of(ConfigError, build, scripted(), **options)) == f"{message}{given}"


# Evolutions


def test_an_evolved_question_has_the_old_one_for_its_parent():
    writer = scripted(Question(question="Почему поле?"), Question(question="Почему, если дождь?"))
    made = (reasoning | conditional)(writer).invoke(ASKED)
    assert (made.question, made.parent) == ("Почему, если дождь?", "Почему поле?")
    assert made.evolution == "reasoning+conditional"
    assert kinds(made) == [("seed", True), ("reasoning", True), ("conditional", True)]
    assert writer.inputs[0] == SHOWN


def test_an_own_evolution_sends_its_instruction_to_the_writer():
    writer = scripted(Question(question="А в сказке?"))
    made = evolution("fairy_tale", "Перепиши `question` как сказку.")(writer).invoke(ASKED)
    assert (made.question, made.evolution) == ("А в сказке?", "fairy_tale")
    assert "как сказку" in writer.asked[0][-1].text


def test_multi_context_adds_the_nearest_passage_and_needs_a_store():
    store = Docstore(["Поле.", "Щавель.", "Кирпич."], splitter=False, embeddings=Ring())
    asked = Candidate(passages=[store.passages[1]]).with_question("Что?", "seed")
    writer = scripted(Question(question="Что общего?"))
    made = multi_context(writer, store).invoke(asked)
    assert (len(made.passages), made.passages[0].text) == (2, "Щавель.")
    assert len(writer.inputs[0]["passages"]) == 2


@each(("deeper", "broader"), [(True, False), (False, True), (False, False)])
def test_an_evolved_question_passes_if_it_is_deeper_or_broader(deeper, broader):
    assert evolution_filter(scripted()).invoke(ASKED) == ASKED  # without a parent
    evolved = ASKED.replace(parent="Поле?")
    critic = scripted(QuestionComparison(reason="Столько же.", deeper=deeper, broader=broader))
    made = evolution_filter(critic).invoke(evolved)
    assert critic.inputs == [{"parent": "Поле?", "question": ASKED.question}]
    if deeper or broader:
        assert made == evolved
    else:
        assert (made.rejected, made.history[-1].feedback) == ("not evolved", "Столько же.")


def test_a_branch_takes_four_calls_and_its_second_try_starts_from_the_first_with_the_same_parent():
    writer = Writer(QuestionComparison=lambda _, before: {"reason": "", "deeper": before == 1, "broader": False})
    made = reasoning(writer.model, critic=writer.model).invoke(ASKED)
    assert (made.rejected, made.evolution) == (None, "reasoning")
    assert writer.calls == {"Question": 4, "QuestionReview": 2, "QuestionComparison": 2}
    assert made.question.count("при чём тут") == 2
    tries = [("reasoning", True), ("compress", False), ("reasoning", True), ("compress", True)]
    assert kinds(made) == [("seed", True), *tries]


# The answer


TWO = ASKED.replace(passages=[passage(0), passage(1)])


@pytest.mark.parametrize(
    ("named", "kept", "rejected"),
    [([1, 2], [0, 1], None), ([2], [1], None), ([2, 7, 1], [0, 1], None), ([], [0, 1], "no passage answers it")],
)
def test_the_passages_that_are_needed_are_kept_in_order(named, kept, rejected):
    made = find_passages(scripted(NeededPassages(reason="нет", passages=named))).invoke(TWO)
    assert made.rejected == rejected
    assert made.passages == [TWO.passages[place] for place in kept]


def test_a_question_over_several_passages_must_need_more_than_one():
    evolved = TWO.replace(evolution="multi_context+reasoning")
    one = NeededPassages(reason="Хватит второго.", passages=[2])
    assert find_passages(scripted(one)).invoke(evolved).rejected == "not all passages are needed"
    both = NeededPassages(reason="", passages=[1, 2])
    assert find_passages(scripted(both)).invoke(evolved).rejected is None


def test_the_reference_answer_comes_from_the_passages_alone_or_the_question_is_rejected():
    blank, good = (ReferenceAnswer(answerable=True, answer=text) for text in ("—", " Пашня. "))
    for replies in ([good], [blank, good]):  # a blank answer is requested again
        writer = scripted(*replies)
        assert answer(writer).invoke(TWO).reference == "Пашня."
        assert [item["passage"] for item in writer.inputs[0]["passages"]] == [1, 2]
        assert len(writer.asked) == len(replies)
    unsaid = ReferenceAnswer(answerable=False, answer="")
    assert answer(scripted(unsaid)).invoke(TWO).rejected == "not answerable from its passages"


@pytest.mark.parametrize(
    ("text", "told"), [("Отрывок о поле.", "В документах этого нет."), ("All of it.", "The documents do not say.")]
)
def test_a_question_that_is_not_answered_has_the_sentence_that_says_so(text, told):
    open_question = FRESH.replace(passages=[passage(0, text)], answerable=False).with_question("Что?", "seed")
    assert answer(scripted(ReferenceAnswer(answerable=False, answer=""))).invoke(open_question).reference == told
    said = ReferenceAnswer(answerable=True, answer="Вот.")
    assert answer(scripted(said)).invoke(open_question).rejected == "the documents answer it"
    assert find_passages(scripted()).invoke(open_question) == open_question


@each(
    ("memory", "rejected"),
    [("Мюнхен основал Генрих Лев в 1158 году.", "known without the documents"), ("Основал Генрих, в 1058.", None)],
)
def test_a_question_that_a_model_answers_from_memory_is_rejected(memory, rejected):
    known = FRESH.with_question("Кто основал Мюнхен?", "seed").replace(reference="Генрих Лев, в 1158 году.")
    for threshold in (0.8, 1):
        made = closed_book_filter(scripted(DegradedAnswer(answer=memory)), threshold=threshold).invoke(known)
        assert made.rejected == rejected
        assert kinds(made)[1:] == ([("closed_book", False)] if rejected else [])
    assert closed_book_filter(scripted()).invoke(known.replace(answerable=False)).rejected is None
    nothing_new = known.replace(reference="Мюнхен основал кто?")
    assert closed_book_filter(scripted(DegradedAnswer(answer="Мюнхен."))).invoke(nothing_new).rejected is None
