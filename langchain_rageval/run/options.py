"""Options of a run: their declaration, default values and checks, and the `Run` built from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from langchain_rageval.errors import ConfigError
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.prices import Price, PriceList
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import UsageMeter


class CallOptions(TypedDict, total=False):
    """Options of the model calls of a run.

    Attributes:
        max_concurrency: Most model calls at a time, 16 by default. Halved when a chat endpoint answers 429, and raised
            again while calls succeed. Only the rejected call waits for Retry-After.
        timeout: Seconds for one model call, the client's own retries included; 60 by default. None waits as long as the
            client does. The wait for a chat model's `rate_limiter` counts only if the model has a cache or is wrapped.
        retry: Retries of calls that failed in transit, by default ten attempts with waits of at most a minute.
        price: Names of models mapped to the price of a million input tokens and of a million output tokens, and
            optionally of a million cached input tokens, as in `{"gpt-4o-mini": (0.15, 0.6, 0.075)}`; or one price for
            all models. In any currency. Usage then has `money`, which is None if a model has no price or reports no
            tokens. None, the default, counts no money.
    """

    max_concurrency: int
    timeout: float | None
    retry: RetryPolicy | None
    price: Mapping[str, Price] | Price | None


class RunOptions(CallOptions, total=False):
    """Options of a run that stores its results and has a budget.

    Attributes:
        journal: Path of an SQLite file that stores each result when it is finished. The same call with the same file,
            after a crash or Ctrl-C, pays only for what the file lacks; failures are tried again. Several processes and
            several configurations may share one file. None, the default, stores nothing.
        budget: What the run may spend; None, the default, sets no limit. Work is started only if its expected cost
            still fits. Work that costs more than expected ends when the budget is spent, in a score with
            `failure.error == "BudgetExceeded"`. Only calls under way may exceed the tokens.
        progress: True to show the progress on stderr.
    """

    journal: str | Path | Journal | None
    budget: Budget | None
    progress: bool


CALL_DEFAULTS: CallOptions = {"max_concurrency": 16, "timeout": 60.0, "retry": None, "price": None}
RUN_DEFAULTS: RunOptions = {**CALL_DEFAULTS, "journal": None, "budget": None, "progress": True}

Options = TypeVar("Options", bound=Mapping[str, object])


def fill_defaults(function: Callable[..., Any], options: Options, defaults: Options) -> Options:
    """Return the options of a call, completed with default values.

    Args:
        function: the function or class that was called; an error names it and lists its parameters.
        options: the keyword arguments of the call.
        defaults: every option with its default value.

    Raises:
        TypeError: if an option does not exist.
    """
    for name in options:
        if name not in defaults:
            raise TypeError(_unexpected(function, name, defaults))
    return cast(Options, {**defaults, **options})


def check_options(options: Mapping[str, object]) -> None:
    """Raise ConfigError if an option of a run, or of asking a chain, is invalid; missing options are not checked."""
    max_concurrency, timeout = options.get("max_concurrency", 1), options.get("timeout")
    retry, journal, budget = options.get("retry"), options.get("journal"), options.get("budget")
    version = options.get("version")  # of a user's chain
    PriceList.of(options.get("price"))
    if not isinstance(max_concurrency, int) or isinstance(max_concurrency, bool) or max_concurrency < 1:
        raise ConfigError(f"max_concurrency must be a whole number of at least 1, got {max_concurrency!r}")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ConfigError(f"timeout must be a number of seconds above 0, or None, got {timeout!r}")
    if not isinstance(retry, RetryPolicy | None):
        raise ConfigError(f"retry must be a RetryPolicy(attempts=...), got {retry!r}")
    if not isinstance(journal, str | Path | Journal | None):
        raise ConfigError(f"journal must be the path of a file, got {type(journal).__name__}")
    if not isinstance(budget, Budget | None):
        raise ConfigError(f"budget must be a Budget(calls=..., tokens=...), got {budget!r}")
    if not isinstance(version, str | None) or version == "":
        raise ConfigError(f"version must be a text such as '1.4', got {version!r}")
    if journal is None and (version is not None or options.get("resume") or options.get("retry_failed")):
        raise ConfigError("version, resume and retry_failed say which answers of a journal are used: name the journal")


def build_run(options: CallOptions) -> Run:
    """Return a new run with these options; those that are missing have their default values.

    Raises:
        ConfigError: if an option has an invalid value.
    """
    check_options(options)
    complete: CallOptions = {**CALL_DEFAULTS, **options}
    limiter = AdaptiveLimiter(complete["max_concurrency"])
    meter = UsageMeter(prices=PriceList.of(complete["price"]))
    retry = complete["retry"] or RetryPolicy()
    return Run(limiter=limiter, retry=retry, timeout=complete["timeout"], meter=meter)


def _unexpected(function: Callable[..., Any], name: str, defaults: Mapping[str, object]) -> str:
    from difflib import get_close_matches
    from inspect import Parameter, signature

    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    parameters = [
        parameter.name for parameter in signature(function).parameters.values() if parameter.kind not in variadic
    ]
    options = list(dict.fromkeys([*parameters, *defaults]))
    similar = get_close_matches(name, options, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    return f"{function.__name__}() got an unexpected option {name!r}{hint} Its options: {', '.join(options)}"
