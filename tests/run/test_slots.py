import asyncio
import threading
import time

import pytest
from waiting import auntil

from langchain_rageval.run.slots import Slots


class Holders:
    """Who holds a slot now, and the most that ever did."""

    def __init__(self):
        self._lock = threading.Lock()
        self.now = self.most = 0

    def come(self):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def go(self):
        with self._lock:
            self.now -= 1


async def test_threads_and_a_loop_share_the_same_slots():
    slots, holders = Slots(3), Holders()

    def in_thread():
        with slots:
            holders.come()
            time.sleep(0.002)
            holders.go()

    async def on_loop():
        async with slots:
            holders.come()
            await asyncio.sleep(0.002)
            holders.go()

    threads = [threading.Thread(target=in_thread) for _ in range(20)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(on_loop() for _ in range(20)))
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert (holders.most, holders.now) == (3, 0)


async def test_without_a_limit_nobody_waits():
    slots = Slots(None)
    async with asyncio.timeout(1), slots, slots:
        with slots:
            pass


async def test_who_came_first_is_served_first_in_a_thread_or_on_the_loop():
    slots, served = Slots(1), []

    def in_thread(number):
        with slots:
            served.append(number)

    async def on_loop(number):
        async with slots:
            served.append(number)

    waiters = []
    async with slots:
        for number in range(6):
            work = asyncio.to_thread(in_thread, number) if number % 2 else on_loop(number)
            waiters.append(asyncio.create_task(work))
            await auntil(lambda place=number: len(slots._waiting) == place + 1)
    await asyncio.gather(*waiters)
    assert served == list(range(6))


async def test_a_cancelled_waiter_leaves_the_queue_to_the_next():
    slots = Slots(1)

    async def take():
        async with slots:
            return "served"

    async with slots:
        first, second = asyncio.create_task(take()), asyncio.create_task(take())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
    assert first.cancelled()
    assert await asyncio.wait_for(second, 1) == "served"


async def test_a_waiter_cancelled_as_its_turn_comes_passes_the_slot_on():
    slots = Slots(1)

    async def take():
        async with slots:
            return "served"

    with slots:
        late = asyncio.create_task(take())
        await asyncio.sleep(0)
    late.cancel()  # the slot is its own already, but it has not been told yet
    await asyncio.wait([late])
    assert late.cancelled()
    assert await asyncio.wait_for(take(), 1) == "served"


async def test_a_slot_comes_back_after_an_error():
    slots = Slots(1)
    with pytest.raises(ZeroDivisionError), slots:
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        async with slots:
            raise ZeroDivisionError
    async with asyncio.timeout(1), slots:
        pass
