"""Ways to call a chain, each an async function of the chain, its input and the config, and ways to score samples."""

from typing import Any

from langchain_rageval import Report, aevaluate, astream_evaluate, evaluate, suite


async def invoke(chain: Any, given: Any, config: Any) -> Any:
    return chain.invoke(given, config)


async def ainvoke(chain: Any, given: Any, config: Any) -> Any:
    return await chain.ainvoke(given, config)


async def stream(chain: Any, given: Any, config: Any) -> Any:
    return [*chain.stream(given, config)]


async def astream(chain: Any, given: Any, config: Any) -> Any:
    return [part async for part in chain.astream(given, config)]


async def events(chain: Any, given: Any, config: Any) -> Any:
    return [event async for event in chain.astream_events(given, config, version="v2")]


async def batch(chain: Any, given: Any, config: Any) -> Any:
    return chain.batch([given], config)


async def abatch(chain: Any, given: Any, config: Any) -> Any:
    return await chain.abatch([given], config)


SINGLE = (invoke, ainvoke, stream, astream)
EVERY = (*SINGLE, events, batch, abatch)

ENTRY_POINTS = (
    *("suite.invoke", "suite.ainvoke", "suite.batch", "suite.abatch"),
    *("evaluate", "aevaluate", "astream_evaluate"),
)


async def report_by(door: str, samples: Any, metrics: Any, **options: Any) -> Report:
    """Return the report of `evaluate` or `aevaluate`, without progress unless the options show it."""
    given = {"progress": False, **options}
    return evaluate(samples, metrics, **given) if door == "evaluate" else await aevaluate(samples, metrics, **given)


async def scores_by(entry_point: str, given: list[Any], metrics: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the scores of samples by name, in order."""
    match entry_point:
        case "suite.invoke":
            return [suite(*metrics).invoke(sample) for sample in given]
        case "suite.ainvoke":
            return [await suite(*metrics).ainvoke(sample) for sample in given]
        case "suite.batch":
            return suite(*metrics).batch(given)
        case "suite.abatch":
            return await suite(*metrics).abatch(given)
        case "evaluate" | "aevaluate":
            return [row.scores for row in (await report_by(entry_point, given, metrics, **options)).rows]
    rows = [row async for row in astream_evaluate(given, metrics)]
    return [row.scores for row in sorted(rows, key=lambda row: row.index)]
