"""The length of a step's instruction and examples, in tokens of real tokenizers.

tiktoken downloads the ranks of its encodings, and the tests have no network. The wheel of litellm contains them, so the
tests need both packages; litellm is not imported.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.each import each
from helpers.texts import LANGUAGES, OWN

from langchain_rageval import PromptSet
from langchain_rageval.prompts.layout import RequestContent, lay_out

pytestmark = pytest.mark.gate
MOST_TOKENS = {"en": 600, "it": 740, "ko": 1020, "ru": 800, "zh": 780}


@pytest.fixture(scope="module", params=["o200k_base"])
def encoding(request):
    """An encoding of tiktoken, with the ranks from the wheel of litellm."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed: no real tokenizer to count with")
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        pytest.skip(f"litellm is not installed: its wheel contains the ranks of {request.param}")
    ranks = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    if not ranks.is_dir():
        pytest.skip(f"this version of litellm does not contain the ranks of {request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(ranks))
        return tiktoken.get_encoding(request.param)


def instruction_and_examples(language, step):
    prompts = PromptSet.default(language)
    content = RequestContent(step, prompts, prompts.get(step), {}, None, {})
    human = lay_out(content, "contexts_first", with_schema=False)[1].text
    return human.partition(f"\n\n{prompts.common.labels['input']}\n")[0]


@each(("language", "step"), [(language, step) for language in LANGUAGES for step in OWN[language]])
def test_an_instruction_and_its_examples_stay_within_the_token_limit_of_their_language(language, step, encoding):
    assert len(encoding.encode(instruction_and_examples(language, step))) <= MOST_TOKENS[language]


def test_the_length_is_measured_without_importing_litellm(encoding):
    assert encoding.encode("Nothing is imported.")
    assert "litellm" not in sys.modules
