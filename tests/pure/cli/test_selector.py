"""The selector language: what it means, and where it says that it can't be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.clients.selector import NODES, BadSelector, parse_selector

JOB = {
    "id": "order-17",
    "type": "order",
    "status": "failed",
    "stuck": "",
    "waiting": 3,
    "node": "web-1-ab12",
    "node_name": "web-1",
    "application": "shop",
    "version": 2,
    "partition": 5,
}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", True),
        ("  ", True),
        ("order-17", True),
        ("order-*", True),
        ("order-?", False),
        ("id=order-1*", True),
        ("id!=order-1*", False),
        ("type=order", True),
        ("type=orde", False),
        ("state=failed", True),
        ("state=waiting", True),
        ("state=running", False),
        ("state=stuck", False),
        ("node=web-1", True),
        ("node=web-1-*", True),
        ("application=shop and version=2", True),
        ("partition=5", True),
        ("type=order and state=running", False),
        ("type=order and not state=running", True),
        ("not not type=order", True),
        ("type=x or state=failed", True),
        ("type=x and state=failed or id=order-17", True),
        ("type=x and (state=failed or id=order-17)", False),
        ("not (type=x or id=y)", True),
        ("NOT type=x AND id=*", True),
        ('id="order-17"', True),
        ('id = "order-*"', True),
        ("id=[o]rder-17", False),
    ],
)
def test_meaning(text: str, chosen: bool) -> None:
    assert parse_selector(text)(JOB) is chosen


def test_quoted_values_may_hold_anything() -> None:
    job = JOB | {"id": 'a (b) "c" and d'}
    assert parse_selector(r'id="a (b) \"c\" and d"')(job)
    assert parse_selector('"a (b)*"')(job)


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("type=", 6, "a value after '=' is missing"),
        ("type= and id=x", 6, None),  # `and` is a value here; what follows is not expected
        ("type=a adn id=b", 8, "'adn' comes unexpectedly"),
        ("colour=red", 1, "'colour' is none of type, id"),
        ("state=broken", 7, "'broken' is none of running"),
        ("and id=a", 1, "a condition is missing before 'and'"),
        ("id=a and", 9, "a condition is missing"),
        ("(id=a", 6, "')' is missing"),
        ("(id=a or type=b", 16, "')' is missing"),
        ("id=a)", 5, "')' comes unexpectedly"),
        ("=a", 1, "a condition is missing before '='"),
        ("id==a", 4, "a value is missing after '='"),
        ('id="a', 4, "a quoted text does not end"),
        ("id=a ! b", 6, "'!' has no meaning here"),
    ],
)
def test_mistakes_are_pointed_at(text: str, column: int, problem: str | None) -> None:
    if problem is None:
        with pytest.raises(BadSelector):
            parse_selector(text)
        return
    with pytest.raises(BadSelector) as caught:
        parse_selector(text)
    first, shown, pointer = str(caught.value).split("\n")
    assert problem in first
    assert f"column {column}" in first
    assert shown == f"  {text}"
    assert pointer.index("^") == 2 + column - 1


@given(st.text(alphabet='ab=!()"\\ *?andortnid', max_size=30))
def test_whatever_is_typed_is_either_understood_or_explained(text: str) -> None:
    try:
        selector = parse_selector(text)
    except BadSelector:
        return
    assert selector(JOB) in (True, False)


NODE = {
    "id": "web-1-ab12",
    "name": "web-1",
    "state": "running",
    "version": "1.2",
    "member": "127.0.0.1:5701",
    "types": {"order": 2, "cart": 1},
}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("web-1", True),
        ("web-1-*", True),
        ("name=web-?", True),
        ("version!=1.2", False),
        ("type=cart and not state=draining", True),
        ("type=basket or member=*:5701", True),
        ("id=web-1", False),
    ],
)
def test_the_same_language_names_nodes(text: str, chosen: bool) -> None:
    assert parse_selector(text, NODES)(NODE) is chosen


@pytest.mark.parametrize(
    ("text", "what"), [("waiting=3", "none of node, id, name"), ("state=failed", "draining, silent")]
)
def test_what_can_not_be_asked_of_a_node(text: str, what: str) -> None:
    with pytest.raises(BadSelector, match=what):
        parse_selector(text, NODES)
