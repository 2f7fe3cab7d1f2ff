"""One call to the grid: sent by the client's machinery, awaited by a trio task, ended in one of three ways.

sent ──> answer ───────────────────────────> done
  |        └─ error of the grid ───────────> Refused, if it was certainly not applied; else Unknown
  ├───> deadline ──────────────────────────> Unknown; a later answer is ignored
  └───> the task is cancelled ─────────────> nobody asks; a later answer is ignored
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import trio
from hazelcast.errors import AccessControlError, HazelcastClientNotActiveError, SplitBrainProtectionError
from hazelcast.invocation import Invocation
from hazelcast.protocol.client_message import OutboundMessage
from outcome import Error, Value

from tenure.scheduler.grid.hazelcast.handover import Handover
from tenure.scheduler.grid.hazelcast.outgoing import give_up
from tenure.scheduler.grid.hazelcast.steady import steady_s
from tenure.scheduler.grid.hazelcast.wire import Decode
from tenure.scheduler.grid.port import Closed, GridError, Refused, Unknown

__all__ = ["About", "Call", "Caller"]

_REFUSALS = (SplitBrainProtectionError, AccessControlError)
"""Errors by which a member says that it did not run the operation."""


class About(NamedTuple):
    """What a call is about, for its errors."""

    what: str
    map: str = ""
    partition: int = -1
    key: bytes = b""

    def __str__(self) -> str:
        place = f" {self.map}[{self.partition}]" if self.map else ""
        return f"{self.what}{place}{f' {self.key!r}' if self.key else ''}"


class Call(Invocation):
    """An invocation of the client that is its own future, so that an answer costs no locks and no callbacks."""

    __slots__ = ("_connection", "about", "caller", "ended", "error", "result", "sends", "serial", "task")

    def __init__(
        self,
        caller: "Caller",
        request: OutboundMessage,
        decode: Decode,
        partition: int,
        about: About,
        *,
        connection: Any = None,
        event_handler: Any = None,
        urgent: bool = False,
    ) -> None:
        # Not by way of the client's own constructor: it would make a future, and that one two locks.
        self.request, self.partition_id, self.response_handler = request, partition, decode
        self.connection, self.event_handler, self.urgent = connection, event_handler, urgent
        self.uuid = self.timeout = self.pending_response = self._connection = None
        self.backup_acks_received, self.backup_acks_expected = 0, -1
        self.pending_response_received_time = -1
        self.future = self  # type: ignore[assignment]  # it does what the client does with a future
        self.sends = 1
        """How often it was, or is about to be, sent."""
        self.caller = caller
        self.about = about
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.task: trio.lowlevel.Task | None = None
        self.serial = -1

    @property
    def sent_connection(self) -> Any:
        return self._connection

    @sent_connection.setter
    def sent_connection(self, connection: Any) -> None:
        """The client sets it when it has sent the request, and to None before it sends it again. That is what counts:
        an answer may be here before the client has noted that it has sent."""
        self._connection = connection
        self.sends += connection is None

    # What the client takes for a future; called in its threads.

    def set_result(self, result: Any) -> None:
        self.result = result
        self.caller.handover.put(self)

    def set_exception(self, exception: BaseException, traceback: object = None) -> None:
        self.error = exception
        self.caller.handover.put(self)

    def done(self) -> bool:
        """Asked before the client sends it again: a call that nobody waits for any more is not repeated, nor kept."""
        if self.ended:
            self.caller.pending.pop(self.request.get_correlation_id(), None)
        return self.ended

    # In the trio thread.

    def arrive(self) -> None:
        if not self.ended:
            self._end()
            self.finish(None if self.error is None else self._failure(self.error))

    def expire(self, timeout_s: float) -> None:
        """Its deadline has passed."""
        self._give_up()
        self.finish(Unknown(f"{self.about}: no answer within {timeout_s:g} s"))

    def abandon(self, _: object = None) -> trio.lowlevel.Abort:
        self._give_up()
        return trio.lowlevel.Abort.SUCCEEDED

    def _give_up(self) -> None:
        self._end()
        give_up(self.request)

    def _end(self) -> None:
        self.ended = True
        self.caller.waiting.pop(self.serial, None)

    def finish(self, failure: GridError | None) -> None:
        assert self.task is not None
        trio.lowlevel.reschedule(self.task, Value(self.result) if failure is None else Error(failure))

    def _failure(self, error: BaseException) -> GridError:
        # Sent once and refused: it never ran. Sent again after a first try: that one may have.
        kind: type[GridError] = Refused if isinstance(error, _REFUSALS) and self.sends <= 1 else Unknown
        reason = str(error).partition("\n")[0]
        if isinstance(error, HazelcastClientNotActiveError):
            # Closed by us, or the cluster that came back is not the one that it was (its partition count, for one).
            kind, reason = Closed, "this connection is closed for good; open another"
        failure = kind(f"{self.about}: {type(error).__name__}{f': {reason}' if reason else ''}")
        failure.__cause__ = error
        return failure


class Notice(Call):
    """A call that no task waits for; `then` is told how it ended."""

    __slots__ = ("then",)

    def __init__(
        self,
        caller: "Caller",
        request: OutboundMessage,
        decode: Decode,
        about: About,
        then: Callable[[Any, GridError | None], None],
        *,
        partition: int = -1,
        **options: Any,
    ) -> None:
        super().__init__(caller, request, decode, partition, about, **options)
        self.then = then

    def finish(self, failure: GridError | None) -> None:
        self.then(self.result, failure)


class Caller:
    """Sends calls and sees to their deadlines. `watch_deadlines` must run as long as it is used."""

    def __init__(self, invocation_service: Any, handover: Handover, op_deadline_s: float) -> None:
        self.handover = handover
        self.waiting: dict[int, Call] = {}
        self.op_deadline_s = op_deadline_s
        self._invoke = invocation_service.invoke
        self.pending: dict[int, Any] = invocation_service._pending
        """The client's calls that are on their way, by their numbers. It never drops one that it gives up repeating."""
        # Beside the calls, not with them: a call keeps its request's bytes alive, and deadlines outlast calls.
        self._deadlines: list[tuple[float, int, float]] = []
        self._serial = itertools.count()
        self._alarm = trio.CancelScope()
        self._alarm_at = float("inf")

    async def call(
        self, request: OutboundMessage, decode: Decode, partition: int, timeout_s: float | None, about: About
    ) -> Any:
        """Send, and wait for the outcome."""
        return await self.run(Call(self, request, decode, partition, about), timeout_s)

    async def compare_and_set(
        self, request: OutboundMessage, decode: Decode, partition: int, timeout_s: float | None, about: About
    ) -> bool:
        """A call whose answer is yes or no. 'No' to a second try may be because of the first one: that is Unknown."""
        call = Call(self, request, decode, partition, about)
        if await self.run(call, timeout_s):
            return True
        if call.sends > 1:
            raise Unknown(f"{about}: 'no', but only when it was sent again")
        return False

    async def run(self, call: Call, timeout_s: float | None = None) -> Any:
        """Send a call that is made already, and wait for the outcome."""
        call.task = trio.lowlevel.current_task()
        self.send(call, timeout_s)
        return await trio.lowlevel.wait_task_rescheduled(call.abandon)

    def send(self, call: Call, timeout_s: float | None = None) -> None:
        """Send without waiting; the call is told its outcome, at its deadline if need be."""
        timeout_s = self.op_deadline_s if timeout_s is None else timeout_s
        # The client stops repeating by its own clock; the call itself ends by trio's.
        call.timeout = steady_s() + timeout_s
        serial = call.serial = next(self._serial)
        self.waiting[serial] = call
        deadline = trio.current_time() + timeout_s
        heapq.heappush(self._deadlines, (deadline, serial, timeout_s))
        if deadline < self._alarm_at:
            self._alarm_at = self._alarm.deadline = deadline
        self._invoke(call)

    async def watch_deadlines(self) -> NoReturn:
        while True:
            self._alarm_at = self._deadlines[0][0] if self._deadlines else float("inf")
            with trio.CancelScope(deadline=self._alarm_at) as self._alarm:
                await trio.sleep_forever()
            self._expire(trio.current_time())

    def _expire(self, now: float) -> None:
        deadlines, waiting = self._deadlines, self.waiting
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1] not in waiting):
            _, serial, timeout_s = heapq.heappop(deadlines)
            if call := waiting.get(serial):
                call.expire(timeout_s)
