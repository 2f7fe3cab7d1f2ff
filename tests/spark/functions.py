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


class Different:
    """How many different values there are, and the longest."""

    def start(self):
        return {"seen": {}, "longest": None}

    def step(self, state, value):
        seen = state["seen"] | {value: state["seen"].get(value, 0) + 1}
        return {"seen": seen, "longest": value if state["longest"] is None else longer(state["longest"], value)}

    def finish(self, state):
        most = max(state["seen"].values())
        return {"different": len(state["seen"]), "most": most, "longest": state["longest"]}


class Sorted:
    """All values, in order."""

    def start(self):
        return []

    def step(self, state, value):
        return sorted([*state, value])

    def finish(self, state):
        return ",".join(state)


in_order = Sorted()


class Unkept(Sorted):
    """Its state is none that can be kept."""

    def step(self, state, value):
        return {value}
