import pytest
from helpers.servers.prefix_cache import PrefixCache, Reading, chat_prompt

BLOCK = 64  # bytes
LONG = "".join(f"{number:04}" for number in range(1, 101))  # 100 tokens: six full blocks, and four tokens


def test_a_new_prompt_is_not_served():
    assert PrefixCache(100).read(LONG) == Reading(prompt=100, served=0)


def test_of_the_same_prompt_all_full_blocks_are_served():
    cache = PrefixCache(100)
    cache.read(LONG)
    again = cache.read(LONG)
    assert (again.served, again.unserved) == (96, 4)


def test_another_first_token_leaves_nothing_of_the_rest():
    cache = PrefixCache(100)
    cache.read(LONG)
    assert cache.read("xxxx" + LONG[4:]).served == 0


def test_a_shared_head_is_served_up_to_its_last_full_block():
    cache = PrefixCache(100)
    head = LONG[: 2 * BLOCK + 20]
    cache.read(head + "a" * 200)
    assert cache.read(head + "b" * 200).served == 32


def test_equal_blocks_after_different_heads_are_not_the_same():
    cache = PrefixCache(100)
    cache.read("a" * BLOCK + LONG)
    assert cache.read("b" * BLOCK + LONG).served == 0


def test_a_prompt_shorter_than_a_block_is_never_served():
    cache = PrefixCache(100)
    assert [cache.read("a" * (BLOCK - 1)).served for _ in range(2)] == [0, 0]


def test_the_blocks_longest_unused_are_forgotten_first():
    cache = PrefixCache(6)
    first, second, third = ("1" * 2 * BLOCK, "2" * 2 * BLOCK, "3" * 2 * BLOCK)
    for prompt in (first, second, third, first, "4" * 2 * BLOCK):
        cache.read(prompt)
    assert cache.read(first).served == 32
    assert cache.read(third).served == 32
    assert cache.read(second).served == 0


def test_the_end_of_a_prompt_is_forgotten_before_its_head():
    cache = PrefixCache(6)
    cache.read(LONG)
    cache.read("x" * 2 * BLOCK)
    assert cache.read(LONG).served == 4 * 16


def test_a_prompt_larger_than_the_cache_keeps_its_head():
    cache = PrefixCache(2)
    cache.read(LONG)
    assert cache.read(LONG).served == 32


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("баня", 2)])
def test_a_token_is_four_bytes(text, tokens):
    assert PrefixCache(1).read(text).prompt == tokens


def test_messages_are_rendered_with_their_roles():
    messages = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "This."}]
    assert chat_prompt(messages) == (
        "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\nThis.<|im_end|>\n<|im_start|>assistant\n"
    )
