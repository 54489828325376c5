import asyncio
import heapq
import math
import random
import signal
import sys
import threading
import time
from collections import deque
from types import SimpleNamespace

import pytest
from helpers.each import each
from helpers.waiting import PATIENCE, auntil, until

from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter


def test_idle_slots_are_neither_held_nor_waited_for():
    slots = AdaptiveLimiter(2)
    (first,) = held(slots, 1)
    idle = [slots.idle]
    (second,) = held(slots, 1)
    slots._acquire(slots.slot())
    idle.append(slots.idle)
    for call in (first, second):
        call.__exit__()
        idle.append(slots.idle)
    assert idle == [1, 0, 0, 1]  # the place of the first went to who waited
    assert (AdaptiveLimiter(2).idle, AdaptiveLimiter(None).idle) == (2, 0)


async def test_waiters_are_served_in_their_order_in_threads_and_on_a_loop():
    slots, served = AdaptiveLimiter(1), []

    def in_thread(number):
        with slots.slot():
            served.append(number)

    async def on_loop(number):
        async with slots.slot():
            served.append(number)

    waiters = []
    async with slots.slot():
        for number in range(6):
            work = asyncio.to_thread(in_thread, number) if number % 2 else on_loop(number)
            waiters.append(asyncio.create_task(work))
            await auntil(lambda place=number: len(slots._waiting) == place + 1)
    await asyncio.gather(*waiters)
    assert served == list(range(6))


@each("has_turn", [False, True])
async def test_a_cancelled_waiter_leaves_the_slot_to_the_next_also_as_its_turn_comes(has_turn):
    slots = AdaptiveLimiter(1)

    async def take():
        async with slots.slot():
            return "served"

    (holder,) = held(slots, 1)
    first, second = asyncio.create_task(take()), asyncio.create_task(take())
    await asyncio.sleep(0)
    if has_turn:
        holder.__exit__()  # the slot is the first one's already, but it has not been told yet
    first.cancel()
    await asyncio.wait([first])
    if not has_turn:
        holder.__exit__()
    assert first.cancelled()
    assert await asyncio.wait_for(second, PATIENCE) == "served"


def test_a_thread_interrupted_by_ctrl_c_while_waiting_leaves_the_queue():
    slots, asleep = AdaptiveLimiter(1), threading.current_thread().ident

    def press_ctrl_c():
        until(lambda: slots._waiting and sys._current_frames()[asleep].f_code.co_name == "wait")
        while slots._waiting:  # again if the signal came just before the lock was waited for
            signal.pthread_kill(asleep, signal.SIGINT)
            time.sleep(0.2)

    with slots.slot():
        threading.Thread(target=press_ctrl_c, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            slots.slot().__enter__()
        assert not slots._waiting
    with slots.slot():
        assert len(slots._holders) == 1
    assert len(slots._holders) == 0


@pytest.fixture
def clock(monkeypatch):
    """Time of the limiter, in seconds, which a test sets, and which passes when a thread sleeps."""

    def sleep(seconds):
        now.seconds += seconds

    now = SimpleNamespace(seconds=100.0)
    time = SimpleNamespace(monotonic=lambda: now.seconds, sleep=sleep)
    monkeypatch.setattr("langchain_rageval.run.adaptive_limiter.time", time)
    return now


def held(slots, count):
    return [slots.slot().__enter__() for _ in range(count)]


def answer(slots, calls, rejected=0):
    """End calls under way, the first ones with a rejection; return the size."""
    for number, call in enumerate(calls):
        (slots.record_rejection if number < rejected else slots.record_success)(call)
        call.__exit__()
    return slots.size


def rounds(slots, count=1):
    """Rounds of successful calls, each as many as there are slots; return the sizes after them."""
    return [answer(slots, held(slots, slots.size)) for _ in range(count)]


def test_the_places_become_as_many_as_calls_are_under_way_and_not_rejected():
    slots = AdaptiveLimiter(16)
    good = held(slots, 2)
    assert answer(slots, held(slots, 8), rejected=8) == 2
    assert answer(slots, good) == 2


def test_at_the_start_further_calls_wait_for_answers_after_a_rejection():
    slots = AdaptiveLimiter(32)
    first = held(slots, 16)
    slots.record_rejection(first[0])
    first[0].__exit__()
    waiting = threading.Thread(target=held, args=(slots, 3), daemon=True)
    waiting.start()
    until(lambda: len(slots._holders) == 16)
    assert [call.sent for call in slots._holders].count(False) == 1
    answer(slots, first[1:])
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    slots = AdaptiveLimiter(32)
    first = held(slots, 8)
    slots.record_rejection(first[0])
    for call in first:
        call.__exit__()
    slots._hold(late := slots.slot())
    assert slots._first_delay(late) == 0  # no call is under way whose answer could be waited for


def test_at_the_start_twice_as_many_calls_as_were_answered_are_sent_at_once(clock):
    def delay():
        slots._hold(call := slots.slot())
        seconds = slots._first_delay(call)
        call.__exit__()
        return seconds

    for is_rejected, sizes in ((False, (8, 16, 32, 64)), (True, (8, 10, 13, 17))):
        slots = AdaptiveLimiter(64)
        for size in sizes:
            calls = held(slots, size)
            assert size == 64 or max(delay(), delay()) > 0
            if is_rejected and size == 8:
                slots.record_rejection(calls.pop(0))
            answer(slots, calls)


def test_a_call_that_waited_for_the_first_answer_gives_its_place_back_if_they_become_fewer():
    slots, sent = AdaptiveLimiter(32), []
    first = held(slots, 16)
    slots.record_rejection(first[0])
    waiting = threading.Thread(target=lambda: sent.extend(held(slots, 1)), daemon=True)
    waiting.start()
    until(lambda: len(slots._holders) == 17)
    assert answer(slots, first[1:8], rejected=7) == 8
    until(lambda: slots._waiting)
    assert sent == []
    for call in (first[0], *first[8:]):
        call.__exit__()
    waiting.join(PATIENCE)
    assert len(sent) == 1


def test_slots_grow_by_half_a_round_up_to_the_size_that_was_too_large_and_wait_there(clock):
    slots = AdaptiveLimiter(32)
    answer(slots, held(slots, 32), rejected=20)  # 12 were answered, 13 are too many
    answer(slots, held(slots, 12), rejected=8)
    assert (slots.size, slots._too_large) == (4, 5)
    assert rounds(slots, 8) == [4] * 7 + [5]  # 5 is tried again after eight rounds
    assert rounds(slots, 4) == [7, 11, 19, 32]  # and was right, so that more are added in each round


def test_a_size_that_is_tried_again_in_vain_is_tried_later_each_time(clock):
    slots = AdaptiveLimiter(32)
    answer(slots, held(slots, 32), rejected=24)
    for waited in (8, 16, 32):
        assert rounds(slots, waited) == [8] * (waited - 1) + [9]
        assert answer(slots, held(slots, 2), rejected=2) == 8


def test_outcomes_of_calls_before_the_last_change_but_one_are_ignored():
    slots = AdaptiveLimiter(16)
    old, good = held(slots, 2), held(slots, 6)
    assert answer(slots, held(slots, 8), rejected=8) == 8
    answer(slots, good)
    for _ in range(12):
        answer(slots, held(slots, slots.size - 2))
    assert slots.size > 8
    assert answer(slots, old, rejected=2) == slots.size


def test_a_call_that_takes_ten_times_as_long_as_usual_counts_no_more(clock):
    slots = AdaptiveLimiter(4)
    for call in held(slots, 4):
        clock.seconds += 0.5
        slots.record_success(call)
        call.__exit__()
    late = held(slots, 4)
    assert slots._acquire(slots.slot()) is not None
    clock.seconds += 100
    slots._admit()
    assert (len(slots._holders), slots._waiting) == (5, deque())
    assert [slots._acquire(slots.slot()) is None for _ in range(2)] == [True, False]  # late: at most half of the limit
    for call in late:
        call.__exit__()


def test_no_call_is_late_where_none_was_answered(clock):
    slots = AdaptiveLimiter(1)
    with slots.slot():
        clock.seconds += 1000
        assert (slots._free(), slots._patience) == (False, None)
    for usual, patience in ((0.01, 1.0), (0.5, 5.0)):  # ten times as long as usual, and a second at least
        slots = AdaptiveLimiter(2)
        call = held(slots, 2)[0]
        clock.seconds += usual
        slots.record_success(call)
        clock.seconds += patience - usual - 0.001
        assert (slots._patience, slots._free()) == (pytest.approx(patience), False)
        clock.seconds += 0.002
        assert slots._free()


def sent_at(clock, slots, count):
    """Yield the seconds from now at which one thread sends calls, without waiting for replies."""
    began = clock.seconds
    for _ in range(count):
        held(slots, 1)
        yield pytest.approx(clock.seconds - began)


def test_the_first_eight_calls_are_sent_at_once_and_the_others_four_milliseconds_apart(clock):
    assert [*sent_at(clock, AdaptiveLimiter(32), 13)] == [0] * 9 + [0.004, 0.008, 0.012, 0.016]
    assert [*sent_at(clock, AdaptiveLimiter(None), 13)] == [0] * 13


def test_calls_are_sent_at_a_stated_pace_and_none_is_saved_up(clock):
    slots = AdaptiveLimiter(8)
    slots.state_pace(10 / 0.98)
    assert [*sent_at(clock, slots, 4)] == [0, 0.1, 0.2, 0.3]
    clock.seconds += 60
    assert [*sent_at(clock, slots, 3)] == [0, 0.1, 0.2]


def test_a_stated_pace_is_kept_whatever_is_answered(clock):
    slots = AdaptiveLimiter(2)
    slots.state_pace(10 / 0.98)
    for _ in range(10):
        clock.seconds += 6
        answer(slots, held(slots, slots.size), rejected=1)
    assert slots.pace == pytest.approx(10)


@each(
    ("has_answer", "least", "share"),
    [(True, 3, 1 / 3), (False, 2, 0.15)],
    ids=["after an answer", "before the first answer"],
)
def test_the_places_become_fewer_from_a_share_and_a_number_of_rejected_calls_on(clock, has_answer, least, share):
    for others in (*range(1, 21), 32, 39, 40, 41, 63):
        slots = AdaptiveLimiter(64)
        if has_answer:
            answer(slots, held(slots, 1))
        sent = others + has_answer
        calls = held(slots, others)
        needed = next((count for count in range(least, others + 1) if count >= share * sent - 1e-9), None)
        sizes = []
        for call in calls[:needed]:
            slots.record_rejection(call)
            sizes.append(slots.size)
        expected = [64] * len(sizes) if needed is None else [64] * (needed - 1) + [max(1, others - needed)]
        assert sizes == expected, others


def test_only_the_latest_calls_count_at_least_twelve_and_as_many_as_there_are_places(clock):
    for limit, window in ((4, 12), (16, 16)):
        slots = AdaptiveLimiter(limit)
        rounds(slots, 50)
        enough = math.ceil(window / 3)
        for _ in range(3):
            assert answer(slots, held(slots, enough - 1), rejected=enough - 1) == limit
            for _ in range(window):
                answer(slots, held(slots, 1))
        assert answer(slots, held(slots, enough - 1), rejected=enough - 1) == limit
        answer(slots, held(slots, 1), rejected=1)
        assert slots.size < limit


def test_retry_after_closes_for_all_only_if_one_place_is_left_and_the_longest_is_kept(clock):
    def closed(rejected, *asked):
        slots = AdaptiveLimiter(8)
        answer(slots, held(slots, 1))
        calls = held(slots, 8)
        for call, seconds in zip(calls[:rejected], [*[None] * (rejected - len(asked)), *asked], strict=True):
            slots.record_rejection(call, seconds)
        return max(0, slots._delay(has_turn=True))

    assert [closed(4, 30.0, 30.0), closed(7, 30.0), closed(8, 30.0, 20.0), closed(8, 20.0, 30.0)] == [0, 30, 30, 30]
    assert closed(8, None) == closed(8, 0.0) == 0


def paced(clock, answered=0):
    """A limiter whose pace has just been measured for two seconds, in which calls were answered."""
    slots = AdaptiveLimiter(8)
    answer(slots, held(slots, 8), rejected=8)
    for _ in range(answered):
        slots.record_success(slots.slot())
    clock.seconds += 1.75
    slots.record_rejection(slots.slot())
    assert slots.pace is None
    clock.seconds += 0.25
    slots.record_rejection(slots.slot())
    return slots


@each(("answered", "pace"), [(0, 0.5), (1, 0.5), (2, 1.0), (7, 3.5)])
def test_a_pace_is_measured_in_two_seconds_and_is_at_least_one_call(clock, answered, pace):
    assert paced(clock, answered).pace == pace


def test_a_measured_pace_changes_every_five_seconds_by_less_after_the_first_rejection(clock):
    slots = paced(clock, 20)

    def change(seconds=5.0, rejected=0):
        before = slots.pace
        clock.seconds += seconds
        for _ in range(rejected):
            slots.record_rejection(slots.slot())
        slots.record_success(slots.slot())
        return round(slots.pace / before, 6)

    without_rejections = [(5, 0, 1.05), (4.75, 0, 1), (0.25, 0, 1.05), (0, 0, 1)]
    for seconds, rejected, factor in (*without_rejections, (5, 1, 1 / 1.05), (5, 0, 1.005), (6, 2, 1 / 1.005)):
        assert change(seconds, rejected) == round(factor, 6)
    for _ in range(60):
        change(rejected=1)
    assert slots.pace == 10 * 0.9


def test_each_time_more_of_the_calls_must_be_rejected_until_the_pace_is_measured_again(clock):
    slots, needed = paced(clock, 20), []
    for answered in (100, 100, 100, 100, 10):
        for _ in range(answered):
            slots.record_success(slots.slot())
        clock.seconds += 2
        before, rejected = slots.pace, 0
        while slots.pace == before:
            rejected += 1
            slots.record_rejection(slots.slot())
        assert slots.pace == answered / 2
        slots.pace += 1e-9  # so that the next change shows
        needed.append(rejected)
    assert needed == [5, 7, 10, 10, 3]  # 4.5%, 6.75% and from then on 10%, and at least three


def test_the_usual_duration_follows_the_calls_by_a_twelfth(clock):
    slots, patience = AdaptiveLimiter(4), []
    for seconds in (1.0, 13.0, 2.0, 14.0):
        (call,) = held(slots, 1)
        clock.seconds += seconds
        slots.record_success(call)
        call.__exit__()
        patience.append(slots._patience)
    assert patience == [10, 20, 20, 30]


def test_places_grow_to_the_limit_and_a_probe_that_is_rejected_takes_back_what_it_added(clock):
    slots = AdaptiveLimiter(32)
    slots._begin_epoch(28)
    slots._too_large = None
    assert rounds(slots, 3) == [29, 31, 32]
    calls = held(slots, 32)
    sizes = []
    for call in calls[:5]:
        slots.record_rejection(call)
        sizes.append(slots.size)
    assert sizes == [32] * 4 + [31]
    slots = AdaptiveLimiter(32)
    slots._begin_epoch(1)
    slots._too_large = 20
    assert rounds(slots, 8) == [2, 3, 4, 6, 9, 13, 19, 19]


def test_a_call_that_was_not_sent_keeps_its_place_unless_there_are_fewer_places_than_calls(clock):
    slots = AdaptiveLimiter(8)
    others = held(slots, 4)
    slots._hold(late := slots.slot())
    slots._begin_epoch(5)
    assert slots._is_open(late)
    slots._begin_epoch(4)
    assert slots._acquire(second := slots.slot()) is not None
    assert not slots._is_open(late)
    assert [waiting for waiting, _ in slots._waiting] == [late, second]
    slots._hold(fresh := slots.slot())
    assert slots._is_open(fresh)  # of this size already
    for call in (*others, fresh):
        call.__exit__()
    assert ({*slots._holders}, slots._waiting) == ({late, second}, deque())


class Endpoint:
    """An endpoint with room for some calls, and callers that share a limiter, in simulated time.

    A call takes 0.1 s, a rejection `notice`; a rejected caller tries again after a second. The calls of a share `rate`
    are rejected at random, and those beyond `pace` calls a second, of which ten are saved up.
    """

    def __init__(self, clock, limit, room, *, rate=0.0, pace=math.inf, notice=0.01, seed=0):
        self.clock, self.slots, self.room, self.rate = clock, AdaptiveLimiter(limit), room, rate
        self.pace, self.notice, self.saved, self.last, self.times = pace, notice, 10.0, clock.seconds, []
        self.random, self.events, self.waiting = random.Random(seed), [], []
        self.inside = self.sent = self.rejected = self.left = 0

    def run(self, calls, callers=64):
        """Make so many calls; return the seconds that they took."""
        began, self.left = self.clock.seconds, self.left + calls
        for _ in range(callers):
            self.at(self.random.uniform(0, 0.02), self.begin)
        while self.events:
            self.clock.seconds, _, step, arguments = heapq.heappop(self.events)
            step(*arguments)
            served = [one for one in self.waiting if one[0].done()]
            self.waiting = [one for one in self.waiting if not one[0].done()]
            for _, slot, waits in served:
                self.proceed(slot, waits)
        return self.clock.seconds - began

    def at(self, seconds, step, *arguments):
        heapq.heappush(self.events, (self.clock.seconds + seconds, self.random.random(), step, arguments))

    def begin(self):
        if self.left > 0:
            self.left -= 1
            self.attempt()

    def attempt(self):
        slot = self.slots.slot()
        self.proceed(slot, slot._waits())

    def proceed(self, slot, waits):
        wait = next(waits, None)
        if isinstance(wait, float):
            self.at(wait, self.proceed, slot, waits)
        elif wait is not None:
            self.waiting.append((wait, slot, waits))
        else:
            self.at(self.random.uniform(0.001, 0.004), self.arrive, slot)

    def arrive(self, slot):
        self.sent += 1
        self.saved = min(10.0, self.saved + (self.clock.seconds - self.last) * self.pace)
        self.last = self.clock.seconds
        is_rejected = self.inside >= self.room or self.random.random() < self.rate or self.saved < 1
        self.saved -= not is_rejected
        self.times.append((self.clock.seconds, is_rejected))
        self.inside += not is_rejected
        self.at(self.notice if is_rejected else self.random.uniform(0.095, 0.105), self.end, slot, is_rejected)

    def end(self, slot, is_rejected):
        self.rejected += is_rejected
        self.inside -= not is_rejected
        (self.slots.record_rejection if is_rejected else self.slots.record_success)(slot)
        slot.__exit__()
        self.at(1.0, self.attempt) if is_rejected else self.at(0.003, self.begin)


@each(("limit", "room", "notice"), [(32, 8, 0.01), (32, 8, 0.04), (32, 4, 0.01), (16, 12, 0.01), (64, 12, 0.01)])
def test_an_endpoint_with_room_for_fewer_calls_rejects_few_and_is_kept_busy(clock, limit, room, notice):
    for seed in range(2):
        endpoint = Endpoint(clock, limit, room, notice=notice, seed=seed)
        seconds = endpoint.run(640, 2 * limit)
        assert 0 < endpoint.rejected <= 0.05 * endpoint.sent
        assert seconds <= 1.25 * 640 * 0.1 / room + 1
        assert room // 2 <= endpoint.slots.lowest_size <= room


def test_an_endpoint_that_answers_ten_calls_a_second_rejects_few_after_ten_seconds(clock):
    for seed in range(8):
        endpoint = Endpoint(clock, 16, 1000, pace=10.0, notice=0.01 + 0.05 * (seed % 2), seed=seed)
        began = clock.seconds
        assert endpoint.run(640, 32) <= 1.1 * 64
        late = [is_rejected for at, is_rejected in endpoint.times if at > began + 10]
        assert sum(late) <= 0.02 * len(late)


def test_calls_rejected_at_random_cost_little_and_the_slots_grow_back_when_there_is_room(clock):
    endpoint = Endpoint(clock, 16, 1000, rate=0.05)
    assert endpoint.run(640, 32) <= 1.5 * 4
    assert endpoint.slots.lowest_size >= 10
    endpoint = Endpoint(clock, 16, 4)
    endpoint.run(80, 32)
    assert endpoint.slots.lowest_size <= 4
    endpoint.room = 1000
    assert endpoint.run(1600, 32) <= 20
    assert endpoint.slots.size == 16


def test_a_reduction_revokes_no_held_slot_and_keeps_the_order_of_the_queue():
    slots, served = AdaptiveLimiter(4), []
    holders = held(slots, 4)
    waiters = [slots._acquire(slots.slot()) for _ in range(3)]
    for call in holders[:3]:
        slots.record_rejection(call)
    assert slots.size == 1
    for call in holders:
        call.__exit__()
        served.append([waiter.done() for waiter in waiters])
    assert served == [[False] * 3] * 3 + [[True, False, False]]  # one slot is left, and the last call held it


def test_another_limit_is_the_size_unless_it_is_smaller():
    slots = AdaptiveLimiter(16)
    slots.set_limit(8)
    assert (slots.limit, slots.size) == (8, 8)
    answer(slots, held(slots, 8), rejected=6)
    slots.set_limit(12)
    assert (slots.limit, slots.size) == (12, 2)
    slots.set_limit(None)
    assert slots.limit == 12
    for reduced_to, limit, size in ((8, 16, 16), (8, 4, 4), (4, 8, 4), (4, 6, 4), (4, 3, 3), (None, 5, 5)):
        slots = AdaptiveLimiter(None if reduced_to is None else 8)
        if reduced_to == 4:
            slots._begin_epoch(4)
        slots.set_limit(limit)
        assert (slots.limit, slots.size, slots.lowest_size) == (limit, size, size)
    slots = AdaptiveLimiter(1)
    held(slots, 1)
    waiter = slots._acquire(slots.slot())
    slots.set_limit(2)
    assert waiter.done()


def test_without_a_limit_or_with_a_single_slot_nothing_is_reduced():
    for limit in (None, 1):
        slots = AdaptiveLimiter(limit)
        assert answer(slots, held(slots, 1), rejected=1) == limit
        assert answer(slots, held(slots, 1)) == slots.lowest_size == limit


async def test_threads_and_a_loop_share_slots_that_shrink_and_grow():
    slots, holders, most = AdaptiveLimiter(8), set(), []

    def report(call, number):
        holders.discard(call)
        (slots.record_success if number % 2 else slots.record_rejection)(call)

    def in_thread(number):
        with slots.slot() as call:
            holders.add(call)
            most.append(len(holders))
            time.sleep(0.001)
            report(call, number)

    async def on_loop(number):
        async with slots.slot() as call:
            holders.add(call)
            most.append(len(holders))
            await asyncio.sleep(0.001)
            report(call, number)

    async with asyncio.timeout(PATIENCE):
        both = (work for number in range(60) for work in (on_loop(number), asyncio.to_thread(in_thread, number)))
        await asyncio.gather(*both)
    assert len(holders) == len(slots._holders) == len(slots._waiting) == 0
    assert max(most) <= 8
    assert slots.lowest_size < 8
