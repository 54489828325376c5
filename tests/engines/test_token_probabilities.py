"""Token log-probabilities of real engines: each verdict of a random Llama gets its probability."""

from typing import Literal

import pytest
from helpers.engines import KEY, LLAMA_SERVER, need
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from langchain_rageval import Judge, Metric, Prompt, RetryPolicy, Step, Value, evaluate
from langchain_rageval.judge.probabilities import probabilities_of

pytestmark = [need("tokenizers", "gguf"), pytest.mark.timeout(900)]


class Tone(BaseModel):
    """Tone of an answer."""

    tone: Literal["polite", "rude", "вежливый"]
    loud: bool


STEP = Step(Tone, prompts=Prompt(instruction="Name the tone."), reads=("answer",))
SAMPLES = [{"question": f"Вопрос {n}?", "answer": f"Ответ {n}."} for n in range(4)]


def check_probabilities(judge):
    answers = []

    def reduce(state):
        answers.append(state["tone"])
        return Value(1.0)

    metric = Metric("tone", aspect="answer", reads={"answer"}, steps=STEP(judge), reduce=reduce, version="1")
    report = evaluate(SAMPLES, metric, progress=False, retry=RetryPolicy(attempts=1), timeout=300)
    assert answers, [row.scores["tone"].failure for row in report.rows]
    for answer in answers:
        for field, label in (("tone", answer.tone), ("loud", str(answer.loud).lower())):
            found = probabilities_of(answer, field)
            assert sum(found.values()) == pytest.approx(1), answer
            assert found[label] > 0, answer


@pytest.mark.skipif(LLAMA_SERVER is None, reason="llama-server is not installed")
def test_llama_server(gguf_file, engine_server):
    command = (LLAMA_SERVER, "-m", str(gguf_file), "-c", "16384", "-np", "2", "--port", "{port}", "--jinja")
    url = engine_server(*command, ready="/health")
    model = ChatOpenAI(model="tiny", base_url=f"{url}/v1", api_key=KEY, max_retries=0, max_tokens=100)
    check_probabilities(Judge(model, probabilities=True, mode="json_schema"))


@need("llama_cpp")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_chat_llama_cpp_with_the_logits_of_all_tokens(gguf_file):
    from langchain_community.chat_models import ChatLlamaCpp

    options = {"n_ctx": 2048, "n_batch": 512, "max_tokens": 100, "verbose": False, "logits_all": True}
    check_probabilities(Judge(ChatLlamaCpp(model_path=str(gguf_file), **options), probabilities=True))
