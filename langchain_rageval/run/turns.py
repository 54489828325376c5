"""Turns: calls to a model that runs in this process are made one at a time.

llama.cpp aborts the process if two threads use one context, MLX crashes, and pipelines of transformers share a
tokenizer that allows only one caller. A single call uses all cores anyway.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Self

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from langchain_rageval._internal.cached import PerProcess
from langchain_rageval._internal.code_identity import is_users_class, named_globals
from langchain_rageval._internal.object_parts import named_parts
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter

_ENGINE_PACKAGES = {
    *("llama_cpp", "transformers", "optimum", "mlx", "mlx_lm", "mlx_vlm", "vllm", "ctransformers", "gpt4all", "torch"),
    *("sentence_transformers", "onnxruntime", "onnxruntime_genai", "openvino_genai", "exllamav2", "rwkv"),
}
_ENGINE_METHODS = ("generate", "forward", "create_chat_completion", "create_completion", "encode", "predict", "run")
_NO_ENGINES = ("Tokenizer", "Config", "Processor", "Criteria", "device", "dtype")
_IN_PROCESS_CLASSES = {
    *("ChatLlamaCpp", "LlamaCpp", "LlamaCppEmbeddings", "HuggingFacePipeline", "MLXPipeline", "ChatMLX", "VLLM"),
    *("HuggingFaceEmbeddings", "HuggingFaceBgeEmbeddings", "HuggingFaceInstructEmbeddings", "HuggingFaceCrossEncoder"),
    *("CTransformers", "GPT4All", "GPT4AllEmbeddings", "ExLlamaV2", "RWKV", "IpexLLM", "OpenVINOEmbeddings"),
}
"""Classes of LangChain whose models run in this process; their engine may be hidden or not loaded yet."""
_ENGINE_FIELDS = ("client", "pipeline", "model")
_PACKAGE = __name__.partition(".")[0]
_MOST_PARTS = 500


class ModelTurn:
    """Context manager, sync and async, for one call to a model: holds the locks of the model's engines.

    An engine is an object that computes in this process, such as a model of `llama_cpp`: see `engines_of`.

    Args:
        gates: locks to acquire, in the same order for all callers; an empty list limits nothing.
    """

    def __init__(self, gates: Sequence[AdaptiveLimiter] = ()) -> None:
        self._gates = gates
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Wait for the gates."""
        if self._gates:
            with ExitStack() as held:
                for gate in self._gates:
                    held.enter_context(gate.slot())
                self._held = held.pop_all()
        return self

    async def __aenter__(self) -> Self:
        """Wait for the gates without blocking the event loop."""
        if self._gates:
            with ExitStack() as held:
                for gate in self._gates:
                    held.push(await gate.slot().__aenter__())
                self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the gates, unless `hold_for` has postponed it."""
        self._held.close()

    async def __aexit__(self, *_: object) -> None:
        """Release the gates, unless `hold_for` has postponed it."""
        self._held.close()

    def hold_for(self, future: Future[Any]) -> None:
        """Keep the model locked until an abandoned call ends in its thread, because the call still uses the engine."""
        held = self._held.pop_all()
        future.add_done_callback(lambda _: held.close())


def gates_of(model: Any) -> list[AdaptiveLimiter]:
    """Return locks that allow one call at a time to each engine of a model, embeddings or a chain.

    An engine is an object that computes in this process, such as a model of `llama_cpp`. The list is empty if there is
    no engine.
    """
    return [_gate_of(engine) for engine in sorted(engines_of(model), key=id)]


def engines_of(model: Any) -> list[Any]:
    """Return the engines that a model, embeddings or a chain run in this process, each engine once.

    An engine is an object of a package such as `llama_cpp` or `transformers`, held by the model or by a part of the
    model. If the engine of a known model class cannot be seen, the model itself is returned.
    """
    engines: dict[int, Any] = {}
    seen: dict[int, Any] = {}  # with the object, so that its id is not reused
    parts = [model]
    while parts and len(seen) < _MOST_PARTS:
        part = parts.pop()
        if part is None or isinstance(part, str | int | float | bytes | type) or id(part) in seen:
            continue
        seen[id(part)] = part
        if _is_engine(part):
            engines[id(part)] = part
        elif any(kind.__name__ in _IN_PROCESS_CLASSES for kind in type(part).__mro__):
            visible = (inner for name in _ENGINE_FIELDS if _is_engine(inner := getattr(part, name, None)))
            engine = next(visible, part)
            engines[id(engine)] = engine
        else:
            parts.extend(_parts_of(part))
    return list(engines.values())


def _is_engine(value: Any) -> bool:
    kind = type(value)
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if not packages & _ENGINE_PACKAGES or any(word in kind.__name__ for word in _NO_ENGINES):
        return False
    return callable(value) or any(hasattr(kind, name) for name in _ENGINE_METHODS)


def _parts_of(value: Any) -> list[Any]:
    """Return what a container, a model, a Runnable or a function of the user holds."""
    if isinstance(value, FunctionType):  # functions of other modules are left out
        parts = [part for _, part in (*named_parts(value), *named_globals(value))]
        return [part for part in parts if not isinstance(part, FunctionType) or part.__module__ == value.__module__]
    kind = type(value)
    is_container = isinstance(value, Mapping | list | tuple | set | partial | MethodType)
    is_own = kind.__module__.partition(".")[0] == _PACKAGE  # a metric or step takes turns for its own models
    is_holder = isinstance(value, BaseModel | Runnable | Embeddings | BaseCrossEncoder) or is_users_class(kind)
    return [part for _, part in named_parts(value)] if is_container or (is_holder and not is_own) else []


_GATES: PerProcess[dict[int, tuple[Callable[[], Any], AdaptiveLimiter]]] = PerProcess(dict)
_LOCK = PerProcess(threading.Lock)


def _gate_of(engine: Any) -> AdaptiveLimiter:
    """Return the gate of an engine, created on first use; an entry is replaced if its engine no longer exists."""
    with _LOCK.value:
        entry = _GATES.value.get(id(engine))
        if entry is None or entry[0]() is not engine:
            try:
                reference: Callable[[], Any] = weakref.ref(engine)
            except TypeError:  # a class with slots: kept for as long as the process runs
                reference = lambda: engine  # noqa: E731
            entry = _GATES.value[id(engine)] = reference, AdaptiveLimiter(1)
        return entry[1]
