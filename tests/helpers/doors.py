"""Ways to call a chain, each an async function of the chain, its input and the config."""

from typing import Any


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
