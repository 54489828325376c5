"""Real engines with a random Llama: each request is answered, no process dies, and what fails is the judge's text.

Install them with `pip install -e ".[engines]"`; tests of absent ones are skipped. `LLAMA_SERVER` names the program
llama-server if it is not on the PATH. The scores mean nothing, except those through LiteLLM, behind which is the
offline judge. `-rs` names what was skipped.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from helpers.engines import KEY, LLAMA_SERVER, need
from helpers.offline import offline, rag_samples, says_the_same
from langchain_openai import ChatOpenAI

from langchain_rageval import Judge, RetryPolicy, context_precision, evaluate, faithfulness, load_judge
from langchain_rageval.errors import ConfigError
from langchain_rageval.trust.probing import probe_judge

pytestmark = [need("tokenizers", "gguf"), pytest.mark.timeout(900)]

ONCE = {"progress": False, "retry": RetryPolicy(attempts=1), "timeout": 300}
"""No retries: a score fails if one call fails in transit."""


def client(url, model, **options):
    return ChatOpenAI(model=model, base_url=f"{url}/v1", api_key=KEY, max_retries=0, max_tokens=200, **options)


def check(report):
    """Each failure is a reply without the right content."""
    failures = [row.scores[name].failure for row in report.rows for name in row.scores]
    assert {failure.error for failure in failures if failure} <= {"JudgeOutputError"}, failures


@need("llama_cpp")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestInThisProcess:
    def test_chat_llama_cpp(self, gguf_file):
        judge = load_judge(f"llamacpp:{gguf_file}", temperature=0.5)
        judge.model.max_tokens = 100
        report = evaluate(rag_samples(4), [faithfulness(judge), context_precision(judge)], **ONCE)
        check(report)

    def test_a_process_survives_the_default_concurrency(self, gguf_file):
        """In a process of its own: ggml would abort it."""
        script = """
            import sys, warnings
            warnings.simplefilter("ignore")
            from helpers.offline import rag_samples
            from langchain_community.chat_models import ChatLlamaCpp
            from langchain_rageval import Judge, evaluate, faithfulness
            model = ChatLlamaCpp(model_path=sys.argv[1], n_ctx=8192, n_batch=512, max_tokens=50, verbose=False)
            report = evaluate(rag_samples(6), faithfulness(Judge(model, mode="prompt", attempts=1)), progress=False)
            print(len(report.rows), "rows")
        """
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(gguf_file)],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert (run.returncode, run.stdout) == (0, "6 rows\n"), run.stderr[-2000:]

    @need("llama_cpp", "starlette_context", "sse_starlette", "pydantic_settings")
    def test_its_server_is_probed(self, gguf_file, engine_server):
        command = ("{python}", "-m", "llama_cpp.server", "--model", str(gguf_file), "--n_ctx", "8192")
        found = probe_judge(Judge(client(engine_server(*command, "--port", "{port}"), "tiny")), timeout=300)
        assert (found.mode, found.narrowed, found.log_probabilities) == ("function_calling", False, True)

    def test_a_file_that_is_no_model_is_named(self, tmp_path):
        path = tmp_path / "empty.gguf"
        path.write_bytes(b"no model")
        with pytest.raises(ConfigError) as caught:
            load_judge(f"llamacpp:{path}")
        assert str(caught.value).startswith("llamacpp: ChatLlamaCpp cannot be built: ")
        assert str(path) in str(caught.value)


@pytest.mark.skipif(LLAMA_SERVER is None, reason="llama-server is not installed")
class TestLlamaServer:
    @pytest.mark.parametrize("mode", ["auto", "json_mode", "prompt"])
    def test_llama_server(self, gguf_file, engine_server, mode):
        command = (LLAMA_SERVER, "-m", str(gguf_file), "-c", "16384", "-np", "2", "--port", "{port}", "--jinja")
        judge = Judge(client(engine_server(*command, ready="/health"), "tiny", seed=1), mode=mode)
        report = evaluate(rag_samples(4), [faithfulness(judge), context_precision(judge)], **ONCE)
        check(report)
        if mode == "auto":
            assert judge._endpoint.capabilities.mode.rung == "json_schema"


@need("torch", "transformers", "uvicorn", "fastapi")
class TestTransformers:
    @pytest.mark.parametrize("mode", ["auto", "prompt"])
    def test_transformers_serve(self, transformers_folder, engine_server, mode):
        program = "from transformers.cli.transformers import main; main()"
        url = engine_server("{python}", "-c", program, "serve", "--port", "{port}", "--device", "cpu", ready="/health")
        judge = Judge(client(url, str(transformers_folder)), mode=mode)
        report = evaluate(rag_samples(2), faithfulness(judge), **ONCE)
        check(report)

    @need("langchain_huggingface")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.parametrize("is_chat", [False, True])
    def test_a_pipeline_in_this_process(self, transformers_folder, is_chat):
        from langchain_huggingface import ChatHuggingFace, HuggingFacePipeline

        options = {"max_new_tokens": 30, "return_full_text": False}
        model = HuggingFacePipeline.from_model_id(str(transformers_folder), "text-generation", pipeline_kwargs=options)
        judge = Judge(ChatHuggingFace(llm=model, model_id=str(transformers_folder)) if is_chat else model)
        report = evaluate(rag_samples(2), faithfulness(judge), **ONCE)
        check(report)


@need("litellm", "fastapi", "backoff", "orjson")
class TestLiteLLMProxy:
    """A proxy in front of a server that answers as OfflineJudge does."""

    @pytest.mark.parametrize("mode", ["auto", "function_calling", "json_mode", "prompt"])
    def test_scores_are_those_without_the_proxy(self, openai_server, engine_server, tmp_path, mode):
        server, samples = openai_server(offline), rag_samples(3)
        judge = Judge(client(self.proxy(server, engine_server, tmp_path), "judge"), mode=mode)
        report = evaluate(samples, faithfulness(judge), **ONCE)
        assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in report.rows)
        assert judge._endpoint.capabilities.mode.rung == ("json_schema" if mode == "auto" else mode)

    def test_it_is_probed(self, openai_server, engine_server, tmp_path):
        found = probe_judge(Judge(client(self.proxy(openai_server(offline), engine_server, tmp_path), "judge")))
        assert (found.mode, found.narrowed, found.grammar, found.log_probabilities) == (
            "json_schema",
            True,
            True,
            False,
        )

    def proxy(self, server, engine_server, folder):
        config = folder / "proxy.yaml"
        config.write_text(
            "model_list:\n"
            "- model_name: judge\n"
            f"  litellm_params: {{model: openai/m, api_base: '{server.url}/v1', api_key: none}}\n",
            "utf-8",
        )
        command = ("{python}", "-c", "from litellm import run_server; run_server()")
        return engine_server(*command, "--config", str(config), "--port", "{port}", ready="/health/liveliness")
