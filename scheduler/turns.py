"""Running turns: an event goes to a handler; what it did is staged in the draft, or undone.

Plain handlers run inline, one after another. Async ones run in a run loop, a task per job that has
something to do; jobs don't wait for each other, and a job has one turn at a time. Nothing here is
visible to anyone before the draft is committed.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler.activities_wire import ActivityEvent
from tenure.scheduler.bodies import DEPTH_MAX, SCALARS, encoded
from tenure.scheduler.context import Context
from tenure.scheduler.draft import Draft
from tenure.scheduler.errors import StateTooLarge, TenureError, TooLarge, TurnTooLarge, WrongType
from tenure.scheduler.failing import ENDS
from tenure.scheduler.fences import Fences
from tenure.scheduler.jobtype import JobType
from tenure.scheduler.keys import checked_address, checked_id, partition_of
from tenure.scheduler.live import Live
from tenure.scheduler.noted import JOB, TURN, job_note, steps_noted, turn_note
from tenure.scheduler.timers import granted
from tenure.scheduler.turnid import set_by, step_turn, turn_id
from tenure.scheduler.wire import EMPTY, UNSTORABLE, Answer, Envelope, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.credit import Credit
    from tenure.scheduler.suspicion import Suspicion
    from tenure.scheduler.tenure import Tenure

__all__ = ["Turns"]

STEP_BYTES = 50
"""A finished step without its name and its result."""
TURNS_IN_A_ROW = 16
"""A job with more to do lets others go first, where not all may run at once."""
UNRUN = (Awaitable, Generator, AsyncGenerator)
"""What runs only when somebody goes through it."""
RUN = frozenset((NoneType, bool, int, float, str, bytes, list, tuple, dict))
"""What most handlers return, and is none of these: so much is seen sooner."""
DEALT_WITH = object()
MESSAGE, RUNNING = Kind.MESSAGE, Status.RUNNING
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_event = msgspec.msgpack.Decoder(ActivityEvent).decode


class TurnTimeout(TenureError):
    """A turn ran longer than its job type allows."""


class OutboxFull(TenureError):
    """The partition can't hold more unsent messages."""


def _refuse_unrun(result: Any) -> NoReturn:
    if isinstance(result, Coroutine):
        result.close()  # or Python would warn that it was never awaited
    raise WrongType(
        f"the handler returned a {type(result).__name__}, of which nothing has run: "
        "define it with `async def`, await in it what it calls, and use no `yield`"
    )


class Turns:
    """The turns of one tenure."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host, self.settings = tenure, tenure.host, tenure.settings
        self.partition, self.state = tenure.partition, tenure.state
        self.partition_count = tenure.host.grid.partition_count
        self.now_ms = tenure.host.now_ms
        self._small_bytes = min(DEPTH_MAX, self.settings.message_bytes_max)
        """What is no larger is neither too large nor nested too deep."""
        self.credit: Credit = tenure.credit
        self.draft = Draft()
        """What is done now goes in here."""
        self.in_flight: Draft | None = None
        """What is being committed."""
        self.budget, self.pace, self.board = tenure.host.budget, tenure.host.pace, tenure.host.board
        self._freed = trio.Event()
        """Set when turns that wait for room in a draft may look again."""
        self.is_awaited = False
        """Does one wait?"""
        self.suspicion: Suspicion = tenure.suspicion
        self.fences = Fences(tenure.host.incarnation, tenure.state.epoch)

    def begin_draft(self) -> Draft:
        """What is done from now on goes into the next record. Returns what this one is to be made of."""
        draft, self.draft = self.draft, Draft()
        self.in_flight = draft
        for look in self.tenure.sightings.looks:
            look.hear(draft)
        if self.is_awaited:
            self.free()
        return draft

    def free(self) -> None:
        """Let turns that wait for room look again."""
        if self.is_awaited:
            self.is_awaited = False
            freed, self._freed = self._freed, trio.Event()
            freed.set()

    def is_full(self) -> bool:
        """Is the draft to be committed before anything more is done?"""
        draft = self.draft
        return draft.changed.size_bytes + draft.other_bytes + draft.sent_bytes >= self.budget.full_bytes

    async def room(self) -> None:
        """What ends at any time, also many at once (async turns, runs), waits until the draft has room for it."""
        while self.is_full() or self.tenure.running.is_starved:
            self.tenure.want_commit()
            self.is_awaited = True
            await self._freed.wait()

    def run_plain(self, live: Live) -> None:
        """Run the queue of a job whose handlers are plain, until it is empty or stopped, or the pass has to end."""
        queue, type, clock, ends_s = live.queue, live.type, self.pace.clock, self.pace.ends_s
        draft, changed, full_bytes = self.draft, self.draft.changed, self.budget.full_bytes
        self.board[JOB] = live.note or self._note(live)
        handler, state_bytes_max = type.handlers.get(MESSAGE) if type.is_class else None, self.settings.state_bytes_max
        is_suspected, turn_bytes_max = self.suspicion.is_on(), self.settings.turn_bytes_max
        # A job that is well may run on: only what is not as it should be is looked at more closely.
        while queue and ((live.failure is None and not live.stuck and live.status == RUNNING) or live.may_run()):
            if is_suspected and self.suspicion.holds(live):
                return
            if changed.size_bytes + draft.other_bytes + draft.sent_bytes >= full_bytes or clock() >= ends_s:
                return
            envelope = queue[0]
            if is_suspected:
                self.board[TURN] = turn_note(self.partition, live.id, turn_id(live.id, live.generation, envelope))
            message = self._begin(live, envelope)
            if message is DEALT_WITH:
                continue
            ctx = Context(self, live, envelope)
            try:
                if live.instance is None:
                    live.instance = type.load(live.state, live.version)
                if handler is not None and envelope.kind == MESSAGE:
                    result = handler(live.instance, ctx, message)
                else:
                    result = self._call(live, type, ctx, envelope, message)
                state = type.dump(live.instance)
                if (
                    result.__class__ in RUN
                    and len(state) <= state_bytes_max
                    and not envelope.reply
                    and (not ctx._asks or (not ctx._asks_more and len(state) + ctx._sent_bytes <= turn_bytes_max))
                ):
                    answer = None  # as `_result` would say
                else:
                    answer = self._result(live, envelope, ctx, state, result)
            except BaseException as error:  # noqa: BLE001  # handed on: see there what is a failure
                self.tenure.failing.raised(live, envelope, error)
            else:
                self._succeed(live, envelope, ctx, state, answer)

    def _note(self, live: Live) -> bytes:
        live.note = job_note(self.partition, live.id, live.type_name)
        return live.note

    def _call(self, live: Live, type: JobType, ctx: Context, envelope: Envelope, message: Any) -> Any:
        kind = envelope.kind
        handler = type.handlers.get(kind)
        if handler is None:
            return None
        if kind == Kind.MESSAGE:
            if type.is_class:
                return handler(live.instance, ctx, message)
            ctx._state = live.instance
            return handler(ctx, message)
        if kind == Kind.ACTIVITY:
            return handler(live.instance, ctx, _decode_event(envelope.body))
        return handler(live.instance, ctx)

    async def run_loop(self, live: Live) -> None:
        """The run loop of one job with async handlers; ends when there is nothing left to do.

        Its tenure is told of the end by the caller.
        """
        live.running = True
        try:
            turns = 0
            while live.queue and self._may_go_on(live) and not self.suspicion.holds(live):
                if self.is_full():  # also what needs no turn may leave much: an answer, a dead letter
                    await self.room()
                    continue
                turns += 1
                if self.tenure.is_closing() or (turns > TURNS_IN_A_ROW and self.host.turns_are_awaited()):
                    return
                envelope = live.queue[0]
                message = self._begin(live, envelope)
                if message is DEALT_WITH:
                    continue
                with trio.CancelScope() as live.scope:
                    await self._run_async(live, envelope, message)
                if live.is_ended:
                    self.tenure.purging.ended(live, envelope)
                    return
                if live.scope.cancelled_caught:
                    live.instance = None
                    return
        finally:
            live.running, live.scope = False, None

    def _may_go_on(self, live: Live) -> bool:
        live.running = False
        may, live.running = live.may_run(), True
        return may

    async def _run_async(self, live: Live, envelope: Envelope, message: Any) -> None:
        type = live.type
        ctx = Context(self, live, envelope)
        try:
            if live.instance is None:
                live.instance = type.load(live.state, live.version)
            if type.timeout_s is None and not type.blocking:
                result = self._call(live, type, ctx, envelope, message)
                if envelope.kind in type.async_kinds and isinstance(result, Awaitable):
                    result = await (self._suspected(live, envelope, result) if self.suspicion.is_on() else result)
            else:
                result = await self._limited(live, type, ctx, envelope, message)
            state = type.dump(live.instance)
            answer = self._result(live, envelope, ctx, state, result)
            if self.is_full() or self.tenure.running.is_starved:
                await self.room()
            if ctx._asks and ctx._wishes is not None:
                self.tenure.activity_changes.check(live, ctx._wishes)
        except BaseException as error:  # noqa: BLE001  # handed on: see there what is a failure
            if isinstance(error, Exception) and not isinstance(error, BaseExceptionGroup):
                await self.room()  # what else there is may come of being cancelled, and then there is no waiting
            self.tenure.failing.raised(live, envelope, error)
        else:
            self._succeed(live, envelope, ctx, state, answer)

    def _suspected(self, live: Live, envelope: Envelope, result: Awaitable[Any]) -> Awaitable[Any]:
        """The same, with each of its steps noted: attempts are counted."""
        if not isinstance(result, Coroutine):
            return result
        job = live.note or self._note(live)
        turn = turn_note(self.partition, live.id, turn_id(live.id, live.generation, envelope))

        def note() -> None:
            self.board[JOB], self.board[TURN] = job, turn

        return steps_noted(result, note, self.board)

    async def _limited(self, live: Live, type: JobType, ctx: Context, envelope: Envelope, message: Any) -> Any:
        """In a thread, or for so long at most."""
        limit_s = float("inf") if type.timeout_s is None else type.timeout_s
        with trio.CancelScope() as limit:

            def begun() -> None:
                limit.deadline = trio.current_time() + limit_s

            call = partial(self._call, live, type, ctx, envelope, message)
            if type.blocking and envelope.kind not in type.async_kinds:
                turn = turn_id(live.id, live.generation, envelope)
                who = f"the blocking turn {turn} of job {live.id!r} ({live.type_name})"
                return await self.host.threads.run(call, who, begun)
            begun()
            result = call()
            if envelope.kind in type.async_kinds and isinstance(result, Awaitable):
                result = await (self._suspected(live, envelope, result) if self.suspicion.is_on() else result)
        if limit.cancelled_caught:
            raise TurnTimeout(f"the turn took longer than {type.timeout_s} s")
        return result

    def steps_bytes(self, live: Live, turn: str) -> int:
        """What the steps of a turn have left that were finished in earlier tries."""
        known = self.state.steps.get(live.id, {}).items()
        return sum(STEP_BYTES + len(name) + len(result) for (of, name), result in known if of == turn)

    async def once(self, ctx: Context, turn: str, name: str, fn: Callable[[], Awaitable[Any] | Any]) -> Any:
        """See `Context.once`."""
        live = ctx._live
        known = self.state.steps.get(live.id, {}).get((turn, name))
        if known is not None:
            return _decode(known)
        self._check_steps(ctx, name, 0)
        result = fn()
        if isinstance(result, Awaitable):
            result = await result
        try:
            encoded = _encode(result)
        except UNSTORABLE as error:
            raise WrongType(f"the result of step {name!r} can't be stored: {error}") from error
        if len(encoded) > self.settings.answer_bytes_max:
            raise TooLarge(
                f"the result of step {name!r} has {len(encoded)} bytes; the limit is {self.settings.answer_bytes_max} "
                "(answer_bytes_max): return less, such as where the rest is kept"
            )
        self._check_steps(ctx, name, len(encoded))
        ctx._steps_bytes += STEP_BYTES + len(name) + len(encoded)
        await self.room()
        draft = self.draft
        draft.steps.append((live.id, turn, name, encoded))
        draft.other_bytes += len(encoded) + len(turn) + len(name)
        draft.uncarried[live.id] = live
        self.tenure.want_commit()
        await draft.committed.wait()
        return _decode(encoded)

    def _check_steps(self, ctx: Context, name: str, size_bytes: int) -> None:
        whole = ctx._steps_bytes + STEP_BYTES + len(name) + size_bytes
        if whole > self.settings.turn_bytes_max:
            raise TurnTooLarge(
                f"with step {name!r}, the steps of the turn would leave {whole} bytes; the limit is "
                f"{self.settings.turn_bytes_max} (turn_bytes_max): return less from them, or do it in several turns, "
                "each of which sends the job its next"
            )

    def _begin(self, live: Live, envelope: Envelope) -> Any:
        """The message, if there is one; or `DEALT_WITH`, if this entry of the queue needs no turn."""
        kind = envelope.kind
        if kind == MESSAGE:
            if envelope.id and (known := self.remembered(live.id, envelope.id)) is not None:
                self.done(live, envelope)
                self.draft.answer(envelope, known[1] or Answer(0, True, EMPTY))
                return DEALT_WITH
            type = live.type
            if MESSAGE not in type.handlers:
                self.done(live, envelope)
                self.tenure.dead_letters.keep(envelope, "WrongType", f"job type {live.type_name!r} has no on_message")
                return DEALT_WITH
            try:
                return type.decode_message(envelope.body)
            except ENDS:
                raise
            except BaseException as error:  # noqa: BLE001  # a message type's own checks may raise anything
                self._refuse(live, envelope, error)
                return DEALT_WITH
        if kind == Kind.STATE:
            self.done(live, envelope)
            self.draft.answer_state(live, envelope)
            return DEALT_WITH
        return None

    def _refuse(self, live: Live, envelope: Envelope, error: BaseException) -> None:
        """A message that it can't decode is no failure of the job."""
        self.done(live, envelope)
        self.tenure.dead_letters.keep(envelope, "WrongType", f"job type {live.type_name!r} can't take it: {error}")

    def remembered(self, job: str, id: str) -> tuple[int, Answer | None] | None:
        """What is kept of a message that has this id, and was done; until when, and the answer."""
        for draft in (self.draft, self.in_flight):
            if draft is not None and (job, id) in draft.remembered:
                return draft.remembered[job, id]
            if draft is not None and job in draft.gone:
                return None  # what is remembered was another generation's
        found = self.state.remembered.get(job, {}).get(id)
        return found if found is not None and found[0] > self.host.clocks.past_ms() else None

    def _result(self, live: Live, envelope: Envelope, ctx: Context, state: bytes, result: Any) -> Raw | None:
        if result.__class__ not in RUN and isinstance(result, UNRUN):
            _refuse_unrun(result)
        settings = self.settings
        if len(state) > settings.state_bytes_max and len(state) > len(live.state):  # an older version's may stay
            raise StateTooLarge(f"the state would have {len(state)} bytes; the limit is {settings.state_bytes_max}")
        answer = None
        if envelope.reply:
            try:
                answer = Raw(_encode(result))
            except UNSTORABLE as error:
                raise WrongType(f"the handler's result can't be an answer: {error}") from error
            if len(answer) > settings.answer_bytes_max:
                raise TooLarge(
                    f"the answer would have {len(answer)} bytes; the limit is {settings.answer_bytes_max} "
                    "(answer_bytes_max): answer with less, or part by part"
                )
        if answer is not None or (ctx._asks and (ctx._sent_bytes or ctx._wishes is not None)):
            self._check_size(live, ctx, state, answer)
        return answer

    def _check_size(self, live: Live, ctx: Context, state: bytes, answer: Raw | None) -> None:
        if ctx._wishes is None:
            most = len(state) + ctx._sent_bytes + (0 if answer is None else len(answer))
            if most <= self.settings.turn_bytes_max:
                return
        parts = {
            # What an older version let grow larger may stay, and is not counted.
            "its state": len(state) if len(state) <= self.settings.state_bytes_max else 0,
            "what it sends": ctx._sent_bytes,
            "its answer": 0 if answer is None else len(answer),
            "its activities": ctx._work_bytes(),
        }
        if (whole := sum(parts.values())) <= self.settings.turn_bytes_max:
            return
        each = ", ".join(f"{what} {size}" for what, size in parts.items() if size)
        raise TurnTooLarge(
            f"the turn would leave {whole} bytes ({each}); the limit is {self.settings.turn_bytes_max} "
            "(turn_bytes_max): do it in several turns, each of which sends the job its next"
        )

    def _succeed(self, live: Live, envelope: Envelope, ctx: Context, state: bytes, answer: Raw | None) -> None:
        asks = ctx._asks
        if asks and ctx._sends is not None and self._must_wait_to_send(live, envelope, ctx._sends):
            return
        draft, id = self.draft, live.id
        if envelope.reply or envelope.id:
            self._answer_success(live, envelope, answer)
        self.done(live, envelope)
        grown = len(state) - len(live.state)
        live.state, live.version = state, live.type.version
        live.turns += 1
        self.host.turns_done += 1
        live.failure = None
        if grown or draft.changed.get(id) is not live:  # else it is there, and counted
            draft.changed[id] = live
        draft.wanted = True
        if asks:
            if ctx._sends is not None:
                sends = draft.sends
                for sent, partition in ctx._sends:
                    sends.setdefault(partition, []).append(sent)
                draft.sent_bytes += ctx._sent_bytes
            if ctx._asks_more:
                self._grant(live, ctx)
        if envelope.kind == MESSAGE:
            return
        if envelope.kind == Kind.START:
            for topic in live.type.topics:
                self.subscribe(live, topic, wanted=True)
        elif envelope.kind == Kind.STOP:
            self.tenure.stopping.remove(live)

    def _must_wait_to_send(self, live: Live, envelope: Envelope, sends: list[tuple[Envelope, int]]) -> bool:
        """Is there no room for what this turn sends? Then it is undone, and runs again."""
        if self.tenure.outbox_is_full():
            live.instance = None
            live.stuck = (
                f"OutboxFull: partition {self.partition} holds {self.settings.outbox_bytes_max} bytes "
                "that are not known to have arrived"
            )
            self.host.report(f"job {live.id!r} is parked: {live.stuck}")
            self.tenure.running.park_sender(live)
            return True
        return bool(self.credit.full) and self.credit.parks(live, envelope, sends)

    def _grant(self, live: Live, ctx: Context) -> None:
        """What few turns ask for."""
        if ctx._timers is not None:
            live.timer = granted(live.timer, ctx._timers, set_by(ctx.turn_id) if ctx._timers.due_ms else 0)
            self.tenure.alarms.set_timer(live)
        if ctx._topics is not None:
            live.topics = ctx._topics
        if ctx._progress is not None:
            live.progress = ctx._progress
        if ctx._wishes is not None:
            self.tenure.activity_changes.apply(live, ctx._wishes)
        if ctx._finished:
            self.tenure.stopping.finish_wanted(live)

    def _answer_success(self, live: Live, envelope: Envelope, result: Raw | None) -> None:
        answer = Answer(envelope.reply, True, result if result is not None else EMPTY)
        if envelope.id:
            until = self.now_ms() + round(live.type.remember_s * 1000)
            # Who does not ask is not told, now or later.
            kept = Answer(0, True, answer.body) if envelope.reply else None
            self.draft.remembered[live.id, envelope.id] = (until, kept)
            self.draft.other_bytes += 60 + len(live.id) + len(envelope.id) + (len(answer.body) if kept else 0)
        self.draft.answer(envelope, answer)

    def done(self, live: Live, envelope: Envelope) -> None:
        """The first entry of the queue is dealt with."""
        live.queue.popleft()
        draft = self.draft
        if live.carried:
            live.carried -= 1
            live.mail_bytes -= len(envelope.body)
            draft.done[live.id] = draft.done.get(live.id, 0) + 1
        if live.precounted:
            live.precounted -= 1
        if draft.steps:
            self._drop_steps(live, envelope)
        draft.wanted = True

    def _drop_steps(self, live: Live, envelope: Envelope) -> None:
        """The turn did not wait for the last of its steps: they go with it, not into the record behind it."""
        turn = step_turn(live.id, live.generation, envelope)
        draft = self.draft
        draft.steps = [step for step in draft.steps if step[0] != live.id or step[1] != turn]

    def subscribe(self, live: Live, topic: str, *, wanted: bool) -> None:
        """Tell the topic's partition, with the commit."""
        if wanted:
            if topic in live.topics:
                return
            live.topics = (*live.topics, topic)
            self.draft.changed[live.id] = live
        sent, partition = self.outgoing(topic, wanted, Kind.SUBSCRIBE, live.id, "")
        self.draft.send(sent, partition)

    def outgoing(
        self, to: str, message: Any, kind: int, source: str, id: str, partition: int | None = None
    ) -> tuple[Envelope, int]:
        """An envelope and the partition that it goes to; refuses what can't be sent."""
        checked_address(to)
        checked_id(id)
        try:
            body = _encode(message)
            if message.__class__ not in SCALARS:
                _decode(body)  # somebody can read it
        except Exception:  # noqa: BLE001  # the reason is said below
            body = b""
        if not 0 < len(body) <= self._small_bytes:
            body = encoded(message, f"message to {to!r}", self.settings.message_bytes_max)
        if partition is None:
            partition = partition_of(to, self.partition_count)
        return Envelope(to, Raw(body), kind, id, 0, source), partition
