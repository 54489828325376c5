"""Values computed once per instance, key or process, and an SQLite file, with threads and forks."""

import copy
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.waiting import PATIENCE, holds_in_a_fork, needs_fork

from langchain_rageval._internal.cached import PerProcess, cached_property, locked_cache
from langchain_rageval._internal.files import SqliteFile


class Slow:
    def __init__(self, begun=None, go_on=None):
        self.begun, self.go_on, self.computed = begun, go_on, 0

    @cached_property
    def value(self):
        """Documented."""
        self.computed += 1
        if self.begun:
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
        return [self.computed]


def test_a_value_is_computed_once_for_each_instance():
    first, second = Slow(), Slow()
    assert first.value is first.value
    assert first.value is not second.value
    assert (first.computed, second.computed) == (1, 1)
    assert Slow.value.__doc__ == "Documented."
    del first.value
    assert first.value == [2]


def test_one_instance_does_not_wait_for_another():
    slow, quick = Slow(threading.Event(), threading.Event()), Slow()
    thread = threading.Thread(target=lambda: slow.value, daemon=True)
    thread.start()
    assert slow.begun.wait(PATIENCE)
    other = threading.Thread(target=lambda: quick.value, daemon=True)
    other.start()
    other.join(PATIENCE)
    slow.go_on.set()
    thread.join(PATIENCE)
    assert not other.is_alive()
    assert quick.computed == slow.computed == 1


def test_concurrent_threads_compute_each_key_once():
    made = []
    meeting = threading.Barrier(16)

    @locked_cache
    def square(number):
        made.append(number)
        time.sleep(0.05)
        return number * number

    def asked(number):
        meeting.wait(PATIENCE)
        return square(number % 2 + 2)

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(asked, range(16))) == [4, 9] * 8
    assert sorted(made) == [2, 3]


def test_a_computation_may_need_another_key_and_is_repeated_after_an_error():
    made = []

    @locked_cache
    def factorial(number):
        made.append(number)
        if number < 0:
            raise ValueError(f"try {len(made)}")
        return number * factorial(number - 1) if number else 1

    assert (factorial(3), factorial(4)) == (6, 24)
    assert made == [3, 2, 1, 0, 4]
    for tried in ("try 6", "try 7"):
        with pytest.raises(ValueError, match=tried):
            factorial(-1)


def test_at_most_256_results_are_cached():
    made = []
    square = locked_cache(lambda number: made.append(number) or number * number)
    assert [square(number) for number in range(257)] == [number * number for number in range(257)]
    assert (square(1), square(256), square(0)) == (1, 65536, 0)
    assert made == [*range(257), 0]


@needs_fork
def test_a_process_forked_during_a_computation_computes_for_itself():
    begun, go_on = threading.Event(), threading.Event()
    parent = os.getpid()

    @locked_cache
    def slow(_key):
        begun.set()
        assert os.getpid() != parent or go_on.wait(PATIENCE)
        return os.getpid()

    thread = threading.Thread(target=slow, args=["key"], daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    is_own = holds_in_a_fork(lambda: slow("key") == os.getpid())
    go_on.set()
    thread.join(PATIENCE)
    assert is_own
    assert slow("key") == parent


# PerProcess


def test_threads_of_a_process_share_the_value():
    given = PerProcess(threading.Lock)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: given.value, range(100)))
    assert all(each is given.value for each in made)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_a_copy_has_its_own_value(again):
    given = PerProcess(threading.Lock)
    with given.value:
        assert not again(given).value.locked()


@needs_fork
def test_a_forked_process_has_its_own_value():
    given = PerProcess(threading.Lock)
    with given.value:
        assert holds_in_a_fork(lambda: not given.value.locked())
        assert given.value.locked()


# An SQLite file


@needs_fork
def test_a_fork_during_a_transaction_leaves_the_child_a_file_that_it_can_write(tmp_path):
    def prepare(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS names (name)")

    def write(name, wait=0.0):
        with file.open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            begun.set()
            time.sleep(wait)
            connection.execute("INSERT INTO names VALUES (?)", (name,))
            connection.execute("COMMIT")
        return True

    file, begun = SqliteFile(tmp_path / "names.db", prepare), threading.Event()
    thread = threading.Thread(target=write, args=("parent", 0.5))
    thread.start()
    assert begun.wait(PATIENCE)
    assert holds_in_a_fork(lambda: write("child"))
    thread.join(PATIENCE)
    write("parent again")
    with file.open() as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM names ORDER BY name")]
    file.close()
    assert names == ["child", "parent", "parent again"]
