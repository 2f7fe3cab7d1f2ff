"""Calls of the adapter on the client's own machinery, without a network: nothing of them is left behind."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from tenure.scheduler.grid.hazelcast.calls import About, Caller
from tenure.scheduler.grid.hazelcast.handover import Handover
from tenure.scheduler.grid.hazelcast.subscriptions import Subscription
from tenure.scheduler.grid.hazelcast.wire import Requests, decode_nothing
from tenure.scheduler.grid.port import Unknown

REQUESTS = Requests("map", 271)


class Connection:
    """To a member that never answers."""

    def __init__(self) -> None:
        self.live = True
        self.close_reason = "it is gone"
        self.sent: list[Any] = []

    def send_message(self, message: Any) -> bool:
        self.sent.append(message)
        return self.live


class Reactor:
    """Runs timers when told to."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []

    def add_timer(self, _delay_s: float, function: Callable[[], None]) -> None:
        self.timers.append(function)

    def turn(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()


class Client:
    """The client's calls, with one connection."""

    def __init__(self) -> None:
        # Not before the adapter, which knows what it warns of.
        from hazelcast.config import Config
        from hazelcast.invocation import InvocationService

        self.reactor, self.connection = Reactor(), Connection()
        lifecycle = SimpleNamespace(is_running=lambda: True)
        self.invocations: Any = InvocationService(SimpleNamespace(lifecycle_service=lifecycle), Config(), self.reactor)
        manager = SimpleNamespace(
            check_invocation_allowed=lambda: None,
            get_connection=lambda _member: self.connection,
            get_random_connection=lambda: self.connection,
        )
        self.invocations.init(SimpleNamespace(get_partition_owner=lambda _partition: "a member"), manager, None, None)
        self.invocations.start()


async def test_a_call_that_was_being_repeated_when_nobody_waited_any_more_is_not_kept(nursery: trio.Nursery) -> None:
    client = Client()
    caller = Caller(client.invocations, Handover(), op_deadline_s=5)
    nursery.start_soon(caller.watch_deadlines)

    async def get(timeout_s: float) -> None:
        with pytest.raises(Unknown, match="no answer"):
            await caller.call(REQUESTS.get(3, b"key"), decode_nothing, 3, timeout_s, About("get"))

    with trio.CancelScope() as cancelled:
        nursery.start_soon(get, 2)
        async with trio.open_nursery() as calls:
            calls.start_soon(get, 60)
            await trio.testing.wait_all_tasks_blocked()
            assert len(client.invocations._pending) == 2
            client.connection.live = False
            for _ in range(5):
                client.reactor.turn()
            assert len(client.connection.sent) > 4, "reads are repeated"
            await trio.sleep(3)
            cancelled.cancel()
    assert not caller.waiting
    sent = len(client.connection.sent)
    for _ in range(3):
        client.reactor.turn()
    assert client.invocations._pending == {}
    assert len(client.connection.sent) == sent


async def test_a_call_whose_deadline_has_passed_keeps_its_bytes_no_longer(nursery: trio.Nursery) -> None:
    """Its member is frozen, and it is tried again and again."""
    client = Client()
    caller = Caller(client.invocations, Handover(), op_deadline_s=5)
    nursery.start_soon(caller.watch_deadlines)
    for deadline_s in (1, None):
        with trio.move_on_after(2), pytest.raises(Unknown):  # the second is cancelled
            await caller.call(REQUESTS.set(3, b"key", bytes(2**20), 0), decode_nothing, 3, deadline_s, About("set"))
    waiting = client.invocations._pending
    assert list(waiting) == [message.get_correlation_id() for message in client.connection.sent]
    assert len(waiting) == 2
    assert sum(len(message.buf) for message in client.connection.sent) < 100
    client.connection.live = False
    for _ in range(3):
        client.reactor.turn()
    assert not waiting


class Heard(Subscription):
    """Takes note of what it hears."""

    def __init__(self, caller: Any) -> None:
        super().__init__(caller)
        self.messages: list[Any] = []

    def requests(self) -> list[Any]:
        return []

    def removal(self, registration: Any) -> Any:
        raise NotImplementedError

    def heard(self, messages: list[Any]) -> None:
        self.messages += messages


def test_events_that_two_threads_hear_at_once_are_handed_over() -> None:
    handed_over: list[Subscription] = []
    subscription = Heard(SimpleNamespace(handover=SimpleNamespace(put=handed_over.append)))
    kind: type[Any] = type(subscription._burst)

    class Interrupted(kind):  # type: ignore[misc]
        """The other thread hears something just after the first has been put here."""

        def append(self, message: Any) -> None:
            super().append(message)
            if message == "first":
                subscription.hear("second")  # type: ignore[arg-type]

    subscription._burst = Interrupted()
    for message in "first", "third":
        subscription.hear(message)  # type: ignore[arg-type]
    assert handed_over == [subscription]
    subscription.arrive()
    assert subscription.messages == ["first", "second", "third"]
    subscription.hear("fourth")  # type: ignore[arg-type]
    assert handed_over == [subscription] * 2
    subscription.arrive()
    assert subscription.messages[3:] == ["fourth"]
