import pytest

from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.pipelines.hashing import fnv1, fnv1a, task_of


@pytest.mark.parametrize(
    ("text", "by_fnv1", "by_fnv1a"),
    [
        ("", 0x811C9DC5, 0x811C9DC5),
        ("a", 0x050C5D7E, 0xE40C292C),
        ("b", 0x050C5D7D, 0xE70C2DE5),
        ("foobar", 0x31F0B262, 0xBF9CF968),
    ],
)
def test_published_values(text, by_fnv1, by_fnv1a):
    assert fnv1(text.encode()) == by_fnv1
    assert fnv1a(text.encode()) == by_fnv1a


def test_the_task_of_a_key_is_its_hash_modulo_tasks():
    assert task_of("a", 7, "fnv1") == 0x050C5D7E % 7
    assert task_of("a", 7, "fnv1a") == task_of("a", 7) == 0xE40C292C % 7


def test_other_hashes_are_refused():
    with pytest.raises(BadOption, match="there are fnv1, fnv1a"):
        task_of("a", 2, "md5")
