"""Functions of a user, as the stages under test name them."""

import json


def has_a(key, value):
    return "a" in key + value


def doubled(key, value):
    return value + value


def numbered(key, value):
    return len(value)


def words(key, value):
    return value.split(" ")


def nothing(key, value):
    return None


def longer(a, b):
    return max(a, b, key=lambda text: (len(text), text))


def amount(key, value):
    return json.dumps(len(value) - 3)


def moment(key, value):
    return len(value) * 7.5


def broken(key, value):
    if "bad" in value:
        raise KeyError(f"no {value}")
    return value


def is_even(key, value):
    return int(value) % 2 == 0
