"""Names and numbers of a rewritten question that its conversation does not contain."""

from helpers.each import each

from langchain_rageval.steps.questions import new_facts

MUNICH = "Wer gründete München?\nHeinrich der Löwe.\nWann ist er gestorben?"
TARIFF = "Was kostet Basis?\nBasis kostet 5 Euro.\nUnd Premium?"
SOURCE = "Кто основал Мюнхен?\nГенрих Лев, в 1158 году.\nА когда он умер?"


@each(
    ("question", "source"),
    [
        ("Когда умер Генрих Лев?", SOURCE),
        ("Какова дата смерти Генриха Льва?", SOURCE),
        ("Что построили в Мюнхене при Генрихе Льве?", SOURCE),
        ("Сколько лет мюнхенскому замку 1158 года?", SOURCE),
        ("Когда родилась Яна?", "Кто такие Ян и Яна?\nБрат и сестра.\nА она?"),
        ("Где живёт Яну сейчас?", "Кто такой Ян?\nА где?"),
        ("Что написал Павел?", "Книга Павла\nА что ещё?"),
        ("What does a loan of 2000 euros cost?", "I need 2,000 euros.\nAnd over ten years?"),
        ("What does a loan of 2 000 euros cost?", "I need 2000 euros.\nAnd?"),
        ("Does Home Plus pay if the Isar floods?", "home plus and the isar\nAnd then?"),
        ("Is iPhone 15 waterproof?", "Tell me about the iPhone 15.\nIs it waterproof?"),
        ("When did Henry's son die?", "Who founded Munich?\nHenry.\nWhen did his son die?"),
        (
            "How do I install Python’s asyncio on Windows?",
            "python on windows\nWhich part?\nasyncio, how do I install it?",
        ),
        ("How fast is the Wi-Fi there?", "Is there wifi?\nYes.\nHow fast is it?"),
        ("How fast is the WiFi there?", "Is there Wi-Fi?\nYes.\nHow fast is it?"),
        ("In welchem Jahr ist der Gründer Münchens, Heinrich der Löwe, gestorben?", MUNICH),
        ("Wie hoch ist der monatliche Preis für den neuen Tarif Premium?", TARIFF),
        ("Was kostet Premium pro Monat, und welche Vorteile hat das?", TARIFF),
        ("Was kosten 2 Jahre Premium?", f"{TARIFF} Für 2."),
        ("Сколько стоит номер на 3 взрослых и 1 ребёнка?", "Нас трое взрослых и ребёнок.\nСколько будет номер?"),
        ("What is the price of a room for 2 people?", "A room for two, please.\nDone.\nWhat's the price?"),
        ("Which visa does a US citizen need for Spain?", "I need a visa for Spain.\nWhich passport?\nAmerican"),
        ("What is the fee in the United States?", "What is the fee in the UK?\n10 pounds.\nand in the states?"),
        ("旅行保险要多少钱？", "1. 家庭保险。2. 旅行保险。\n第二个要多少钱？"),
    ],
)
def test_names_in_other_forms_and_numbers_in_other_groups_are_not_new(question, source):
    assert new_facts(question, source) == []


@each(
    ("question", "source", "facts"),
    [
        ("Когда умер Фридрих Барбаросса?", SOURCE, ["Фридрих", "Барбаросса"]),
        ("Когда Генрих Лев умер в 1195 году?", SOURCE, ["1195"]),
        ("Когда умерла Елена?", "Кто такой Лев?\nА она?", ["Елена"]),
        ("Когда умер Лена?", "Кто такой Лев?\nА когда?", ["Лена"]),
        ("Сколько стоит Windows в магазине?", "Сколько стоит программа?\nА там?", ["Windows"]),
        ("When did Otto die in 973?", "Who was the king?\nHenry.\nAnd when did he die?", ["Otto", "973"]),
        ("When did Otto's son die?", "Who founded Munich?\nHenry.\nWhen did his son die?", ["Otto's"]),
        ("Wann starb der letzte Kaiser Barbarossa?", MUNICH, ["Barbarossa"]),
        ("Was kostet Ultra in dem Jahr 2031?", TARIFF, ["Ultra", "2031"]),
        ("How much is a room for 3 people?", "A room for two, please.\nDone.\nHow much?", ["3"]),
        ("What is the fee in the United States?", "What is the fee in the UK?\n10.\nand there?", ["States"]),
        ("What does version 3.1 cost?", "What does version 3 cost?\nAnd the next one?", ["3.1"]),
    ],
)
def test_names_and_numbers_from_nowhere_are_found(question, source, facts):
    assert new_facts(question, source) == facts
