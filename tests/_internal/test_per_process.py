"""PerProcess: one for all threads of a process, another for each fork, copy and pickle."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.waiting import holds_in_a_fork, needs_fork

from langchain_rageval._internal.cached import PerProcess


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
