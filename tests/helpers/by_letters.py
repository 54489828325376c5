"""Inputs and helpers for tests of the string metrics: hypothesis strategies, long texts, `scored` and `value`."""

from hypothesis import strategies as st

_ENGLISH = "the cat dog sat on mat a 5 3.5% Munich, founded in 1158. (so) it's well-known & old"
_RUSSIAN = "Ёлка ёлку елки полис полиса действует 30 дней, год. «Гавань» — № 5 т.д."

ENGLISH = st.lists(st.sampled_from(_ENGLISH.split(" ")), min_size=1, max_size=14).map(" ".join)
RUSSIAN = st.lists(st.sampled_from(_RUSSIAN.split(" ")), max_size=9).map(" ".join)

LONG = (
    "Страхование бани оформляют вместе с домом. Полис действует один год! Взнос платят раз в квартал?",
    "Ёлку рубить нельзя: штраф — 5000 рублей. Всё ещё нельзя.",
)


def scored(metric, answer, *references, question="Что?"):
    """Return the score of an answer."""
    return metric.invoke({"question": question, "answer": answer, "references": list(references)})


def value(metric, answer, *references):
    """Return the value of the score of an answer."""
    return scored(metric, answer, *references).value
