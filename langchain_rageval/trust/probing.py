"""`probe_judge`: find out with at most five small requests what a judge's endpoint can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.canaries import canary_metric
from langchain_rageval.evaluation.dry_run import context_window
from langchain_rageval.judge.endpoint import EndpointProbe
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.ladder import client_family, inner_models
from langchain_rageval.metrics.structure import score_sample
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.retry import RetryPolicy, limits_in
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import UsageMeter

_REQUESTS = 5
_FAST, _FASTER = 0.5, 1.5  # seconds, and times the second request, that a new schema may cost
_WINDOWS = ("max_model_len", "max_context_length", "context_length", "context_window", "n_ctx", "n_ctx_train")
_FACTS = ("Munich was founded in 1158.", "The Isar flows through Munich.")


@dataclass
class _Replies(BaseCallbackHandler):
    """Collects the replies of the models."""

    messages: list[AIMessage] = field(default_factory=list)
    run_inline = True

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        generations = (generation for part in response.generations for generation in part)
        replies = [one.message for one in generations if isinstance(one, ChatGeneration)]
        self.messages += [reply for reply in replies if isinstance(reply, AIMessage)]


def probe_judge(judge: JudgeLike, *, timeout: float = 60.0) -> EndpointProbe:
    """Find out which features a judge's endpoint supports, with at most five small requests.

    The result names an output mode that works, the context window and the rate limits. It says whether the endpoint
    accepts a schema for each request, reuses prompt prefixes and returns log-probabilities. The requests ask whether a
    short text supports a statement. The second request has a schema that the endpoint has not seen, and the third
    request repeats this schema. If the third is hardly faster than the second, a new schema for each request costs
    nothing.

    Args:
        judge: the judge; of a jury, only the first member is tested.
        timeout: seconds for one request.

    Raises:
        ConfigError: if no request gets a valid reply; the message is that of the last error.
    """
    judge = Judge.of(judge).members[0]
    model: Any = judge.model
    if hasattr(model, "include_response_headers"):
        model = model.model_copy(update={"include_response_headers": True})
    options: dict[str, Any] = {"attempts": 1, "draws": 1, "probabilities": True, "grammar": True, "probe": None}
    asked, meter, replies = replace(judge, model=model, **options), UsageMeter(), _Replies()
    governor = Governor(Budget(calls=_REQUESTS), meter, 1)
    run = Run(governor=governor, retry=RetryPolicy(attempts=1), timeout=timeout, meter=meter)
    metric, scores = canary_metric(asked), list[Score]()
    for statement, facts in zip((*_FACTS, _FACTS[0]), (_FACTS[:1], _FACTS, _FACTS), strict=True):
        sample = Sample(question="What does the text say?", answer=statement, contexts=list(facts))
        scores.append(score_sample(metric, sample, run, {"callbacks": [replies]})["canary"])
    known = asked._endpoint.capabilities
    if known.mode is None:
        failure = next(score.failure for score in scores if score.failure)
        raise ConfigError(f"no request got a valid reply: {failure.text}", failure)
    narrowed = known.mode.rung == "json_schema" and not known.refuses_own_schemas
    new, again = (score.usage.seconds for score in scores[1:])
    is_fast = all(score.failure is None for score in scores) and new <= max(again + _FAST, again * _FASTER)
    calls = meter.usage.calls
    window = _stated_window(judge.model) if calls < _REQUESTS else None
    found = (limits_in(reply.response_metadata.get("headers") or {}) for reply in replies.messages)
    requests, tokens = next((limits for limits in found if any(limits)), (None, None))
    used: list[Mapping[str, Any]] = [reply.usage_metadata or {} for reply in replies.messages]
    details = (tokens.get("input_token_details") or {} for tokens in used)
    cached = [detail["cache_read"] for detail in details if detail.get("cache_read") is not None]
    return EndpointProbe(
        judge=judge.identity,
        mode=known.mode.rung,
        narrowed=narrowed,
        grammar=narrowed and (known.grammar or client_family(judge.model).grammar or is_fast),
        context_window=window or context_window(judge.model),
        prefix_cache=any(cached) if cached else None,
        log_probabilities=known.replies_with_tokens > 0,
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        requests=min(calls + 1, _REQUESTS),
    )


def _stated_window(model: Any) -> int | None:
    """Return the context window that an OpenAI-compatible server states for a model; None if it states none."""
    for inner in inner_models(model):
        client, name = getattr(inner, "root_client", None), getattr(inner, "model_name", None)
        if client is None:
            continue
        try:
            models = client.with_options(max_retries=0, timeout=10.0).models.list().to_dict().get("data") or []
        except Exception:  # the server has no list of models, or refuses it: the window remains unknown
            return None
        stated = next((one for one in models if one.get("id") == name), models[0] if len(models) == 1 else {})
        parts = [stated, *(part for part in stated.values() if isinstance(part, Mapping))]
        numbers = (part.get(name) for name in _WINDOWS for part in parts)
        return next((number for number in numbers if isinstance(number, int) and number > 0), None)
    return None
