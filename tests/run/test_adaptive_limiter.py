import asyncio
import signal
import threading
import time

import pytest
from helpers.waiting import PATIENCE, auntil, until

from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter


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


def test_idle_slots_are_neither_held_nor_waited_for():
    slots = AdaptiveLimiter(2)
    assert slots.idle == 2
    with slots:
        assert slots.idle == 1
        with slots:
            waiting = threading.Thread(target=slots.__enter__, daemon=True)
            waiting.start()
            until(lambda: slots._waiting)
            assert slots.idle == 0
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        assert slots.idle == 0  # it went to who waited
    slots.__exit__()
    assert slots.idle == 2
    assert AdaptiveLimiter(None).idle == 0


async def test_without_a_limit_nobody_waits():
    slots = AdaptiveLimiter(None)
    async with asyncio.timeout(PATIENCE), slots, slots:
        with slots:
            pass


async def test_waiters_are_served_in_their_order_in_threads_and_on_a_loop():
    slots, served = AdaptiveLimiter(1), []

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
    slots = AdaptiveLimiter(1)

    async def take():
        async with slots:
            return "served"

    async with slots:
        first, second = asyncio.create_task(take()), asyncio.create_task(take())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
    assert first.cancelled()
    assert await asyncio.wait_for(second, PATIENCE) == "served"


async def test_a_waiter_cancelled_as_its_turn_comes_passes_the_slot_on():
    slots = AdaptiveLimiter(1)

    async def take():
        async with slots:
            return "served"

    with slots:
        late = asyncio.create_task(take())
        await asyncio.sleep(0)
    late.cancel()  # the slot is its own already, but it has not been told yet
    await asyncio.wait([late])
    assert late.cancelled()
    assert await asyncio.wait_for(take(), PATIENCE) == "served"


def test_a_thread_interrupted_by_ctrl_c_while_waiting_leaves_the_queue():
    slots, asleep = AdaptiveLimiter(1), threading.current_thread().ident

    def press_ctrl_c():
        until(lambda: slots._waiting)
        signal.pthread_kill(asleep, signal.SIGINT)

    with slots:
        threading.Thread(target=press_ctrl_c, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            slots.__enter__()
        assert not slots._waiting
    with slots:
        assert slots._used == 1
    assert slots._used == 0


async def test_a_slot_comes_back_after_an_error():
    slots = AdaptiveLimiter(1)
    with pytest.raises(ZeroDivisionError), slots:
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        async with slots:
            raise ZeroDivisionError
    async with asyncio.timeout(PATIENCE), slots:
        pass


def refuse(slots, since):
    slots.record_rejection(since)
    return slots.size


def succeed(slots, times):
    """As many calls as that, one after the other."""
    for _ in range(times):
        with slots as since:
            slots.record_success(since)
    return slots.size


def halved(limit):
    slots = AdaptiveLimiter(limit)
    with slots as since:
        slots.record_rejection(since)
    return slots


def test_calls_rejected_together_halve_the_slots_once():
    slots = AdaptiveLimiter(16)
    with slots as one, slots as other:
        assert [refuse(slots, one), refuse(slots, other), refuse(slots, one)] == [8, 8, 8]
    with slots as later:
        assert [refuse(slots, later), refuse(slots, later), refuse(slots, one)] == [4, 4, 4]
    assert (slots.limit, slots.lowest_size) == (16, 4)


def test_at_least_one_slot_remains():
    slots, sizes = AdaptiveLimiter(16), []
    for _ in range(6):
        with slots as since:
            sizes.append(refuse(slots, since))
    assert sizes == [8, 4, 2, 1, 1, 1]


def test_a_round_of_successes_adds_a_slot_and_the_rejected_size_takes_four_rounds():
    slots = halved(6)
    assert [succeed(slots, 2), succeed(slots, 1)] == [3, 4]
    assert [succeed(slots, 4), succeed(slots, 4 * 5 - 1), succeed(slots, 1)] == [5, 5, 6]
    assert succeed(slots, 100) == 6
    assert slots.lowest_size == 3


def test_beyond_the_rejected_size_slots_grow_by_one_each_round():
    slots = halved(16)
    with slots as since:
        slots.record_rejection(since)  # 8 were too many
    assert succeed(slots, 4 + 5 + 6 + 4 * 7) == 8
    assert [succeed(slots, 7), succeed(slots, 1), succeed(slots, 9)] == [8, 9, 10]


def test_if_three_quarters_of_the_calls_under_way_succeed_all_slots_but_one_are_restored():
    slots = AdaptiveLimiter(16)
    early = [slots.__enter__() for _ in range(16)]
    slots.record_rejection(early[0])
    sizes = []
    for since in early[1:]:
        slots.record_success(since)
        sizes.append(slots.size)
    assert sizes == [8] * 11 + [15] * 4


def test_outcomes_of_calls_before_the_last_halving_but_one_are_ignored():
    slots = AdaptiveLimiter(8)
    with slots as long_ago:
        for _ in range(2):
            with slots as since:
                slots.record_rejection(since)
        for _ in range(50):
            slots.record_success(long_ago)
        assert refuse(slots, long_ago) == 2


async def test_halving_revokes_no_held_slot_and_keeps_the_order_of_the_queue():
    slots, served = AdaptiveLimiter(4), []
    holders = [slots.__enter__() for _ in range(4)]

    async def wait(number):
        async with slots:
            served.append(number)
            await asyncio.sleep(0.01)

    waiters = [asyncio.create_task(wait(number)) for number in range(5)]
    await auntil(lambda: len(slots._waiting) == 5)
    slots.record_rejection(holders[0])
    for _ in range(2):
        slots.__exit__()
        await asyncio.sleep(0.005)
        assert served == []  # two slots are left, and two still hold one
    slots.__exit__()
    await auntil(lambda: served == [0])
    slots.__exit__()
    await asyncio.gather(*waiters)
    assert served == [0, 1, 2, 3, 4]


async def test_an_added_slot_goes_to_the_first_waiter():
    slots = halved(4)
    async with slots, slots as since:
        late = asyncio.create_task(slots.__aenter__())
        await auntil(lambda: slots._waiting)
        slots.record_success(since)
        assert not late.done()
        slots.record_success(since)
        assert await asyncio.wait_for(late, PATIENCE) == 1
    slots.__exit__()


def test_without_a_limit_or_with_a_single_slot_nothing_is_halved():
    for limit in (None, 1):
        slots = AdaptiveLimiter(limit)
        with slots as since:
            assert refuse(slots, since) == limit
        assert succeed(slots, 20) == slots.lowest_size == limit


async def test_threads_and_a_loop_share_slots_that_halve_and_grow():
    slots, holders = AdaptiveLimiter(8), Holders()

    def report(since, number):
        if number % 7:
            slots.record_success(since)
        else:
            slots.record_rejection(since)

    def in_thread(number):
        with slots as since:
            holders.come()
            time.sleep(0.001)
            holders.go()
            report(since, number)

    async def on_loop(number):
        async with slots as since:
            holders.come()
            await asyncio.sleep(0.001)
            holders.go()
            report(since, number)

    threads = [threading.Thread(target=in_thread, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(on_loop(number) for number in range(60)))
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert holders.now == slots._used == len(slots._waiting) == 0
    assert holders.most <= 8
    assert slots.lowest_size < 8
