"""Handlers that could never be called, and types that can't be stored, are refused when they are registered."""

import threading
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tenure.scheduler.context import Context
from tenure.scheduler.errors import Mistake
from tenure.scheduler.jobtype import Job, JobType, Registry, job


def registered(**methods: Any) -> JobType:
    return JobType("shop", type("Shop", (Job,), methods))


def handler(self: Any, ctx: Context) -> None: ...


def on_message(self: Any, ctx: Context, message: int) -> None: ...


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("on_mesage", "on_message"),
        ("on_messages", "on_message"),
        ("on_cron", "on_timeout"),
        ("on_timer", "on_timeout"),
        ("on_time_out", "on_timeout"),
        ("on_init", "on_start"),
        ("on_started", "on_start"),
        ("on_resumed", "on_resume"),
        ("on_stopped", "on_stop"),
        ("on_activty", "on_activity"),
    ],
)
def test_a_mistyped_handler_is_refused_with_what_is_meant(slip: str, meant: str) -> None:
    with pytest.raises(Mistake, match=rf"job type 'shop': nothing calls Shop.{slip}; is {meant} meant\?"):
        registered(**{slip: handler})
    with pytest.raises(Mistake, match=f"is {meant} meant"):
        JobType("sub", type("Sub", (type("Shop", (Job,), {slip: handler}),), {}))


def test_helpers_may_be_called_what_they_are() -> None:
    registered(on_order=handler, on_payment_received=handler, on_message=on_message, on_messages=handler)
    registered(on_timeout=handler, on_tick=handler, on_cron=handler)


@pytest.mark.parametrize(
    ("name", "method", "shown"),
    [
        (
            "on_message",
            handler,
            r"handler\(self: Any, ctx: .*\) -> None can't be called as `def handler\(self, ctx, message\)`",
        ),
        ("on_start", on_message, r"on_message\(.*\) -> None can't be called as `def on_message\(self, ctx\)`: missing"),
        ("on_activity", handler, r"`def handler\(self, ctx, event\)`: too many"),
        ("on_timeout", lambda self: None, r"`def <lambda>\(self, ctx\)`"),
    ],
)
def test_a_handler_that_can_not_be_called_is_refused_by_its_name(name: str, method: Any, shown: str) -> None:
    with pytest.raises(Mistake, match=shown) as caught:
        registered(**{name: method})
    assert "0x" not in str(caught.value)


def test_a_function_that_takes_no_message_is_refused_by_its_name() -> None:
    def greet(ctx: Context) -> None: ...

    with pytest.raises(Mistake, match=r"^greet\(.*\) -> None can't be called as `def greet\(ctx, message\)`"):
        JobType("greeter", greet)


def test_handlers_may_take_more_than_they_get() -> None:
    def greet(ctx: Context, message: str = "", *others: int, **more: int) -> None: ...

    assert JobType("greeter", greet).message_type is str


@dataclass
class Paid:
    n: int


@dataclass
class Refunded:
    n: int


class TaggedPaid(msgspec.Struct, tag=True):
    n: int


class TaggedRefunded(msgspec.Struct, tag=True):
    n: int


def test_messages_of_several_kinds_get_advice() -> None:
    def shop(ctx: Context, message: Paid | Refunded) -> None: ...

    def tagged(ctx: Context, message: TaggedPaid | TaggedRefunded) -> None: ...

    with pytest.raises(
        Mistake, match=r"job type 'shop': its messages: .*tagged structs: `class Paid\(msgspec.Struct, tag=True\)"
    ):
        JobType("shop", shop)
    found = JobType("shop", tagged).decode_message(msgspec.msgpack.encode(TaggedRefunded(3)))
    assert found == TaggedRefunded(3)


def test_a_field_that_can_not_be_stored_is_named() -> None:
    fields = {"total": int, "lock": threading.Lock}
    with pytest.raises(Mistake, match=r"job type 'shop': field 'lock' of its state: .* is not supported"):
        JobType("shop", type("Shop", (Job,), {"__annotations__": fields}))


def test_the_decorator_without_brackets_says_what_to_write() -> None:
    with pytest.raises(Mistake, match=r"write @tenure.job\('counter'\) above Counter"):

        @job  # type: ignore[arg-type]
        class Counter(Job):
            total: int = 0

    with pytest.raises(Mistake, match=r"write @tenure.job\('tally'\) above tally"):

        @job  # type: ignore[arg-type]
        def tally(ctx: Context, message: int) -> None: ...

    assert len(Registry()) == 0
