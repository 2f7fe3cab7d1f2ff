"""What a handler sees of the world: its job, its turn, and what it may ask for.

Everything asked for here takes effect when the turn is committed, together with the state, or not at all.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.scheduler.activities import Wish, apply, begin
from tenure.scheduler.activities_wire import Activity, ActivityPolicy
from tenure.scheduler.budget import ENVELOPE_BYTES
from tenure.scheduler.errors import Mistake, TooLarge, TurnTooLarge
from tenure.scheduler.jobtype import COUNT_MAX, Retry
from tenure.scheduler.keys import split_slot_key
from tenure.scheduler.timers import TimerWish, check_cron, due_at_ms, due_in_ms, next_cron_ms
from tenure.scheduler.topic import Topic
from tenure.scheduler.turnid import EVENTS, step_turn, turn_id
from tenure.scheduler.wire import Envelope, Kind

if TYPE_CHECKING:
    from tenure.scheduler.assignment import NodeInfo
    from tenure.scheduler.live import Live
    from tenure.scheduler.turns import Turns

__all__ = ["Context", "Event", "MessageInfo"]

Event = str
NO_WISH = TimerWish()


class MessageInfo(NamedTuple):
    """Where a message came from."""

    sender: str
    """The id of the job that sent it, or of the client, in hex."""
    number: tuple[int, int, int]
    """(lane, slot, index): grows with each message of a sender to this job's partition."""
    id: str
    """The publisher's own id for it, or empty."""
    topic: str
    """The topic that it was published to, or empty."""


class Context:
    """A turn's own view. Not for use after the turn has ended."""

    # Class attributes are the defaults, so that a turn that asks for nothing costs nothing.
    _sends: "list[tuple[Envelope, int]] | None" = None
    _timers: TimerWish | None = None
    _progress: tuple[int, int] | None = None
    _topics: tuple[str, ...] | None = None
    _finished = False
    _fence = 0
    _state: dict[str, Any] | None = None
    _wishes: "list[Wish] | None" = None
    _sent_bytes = 0
    _steps_bytes = -1
    """Of the results of its finished steps; negative: not asked for yet."""
    _asks = False
    """Is any of these set?"""
    _asks_more = False
    """Is one of them set besides what it sends?"""

    def __init__(self, turns: "Turns", live: "Live", envelope: Envelope) -> None:
        self._turns = turns
        self._live = live
        self._envelope = envelope

    # -- what this turn is ------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The job's id, which is its address too."""
        return self._live.id

    @property
    def event(self) -> Event:
        """started, message, timeout, cron, activity, resumed or stopped."""
        return EVENTS[self._envelope.kind]

    @property
    def message(self) -> MessageInfo:
        """Where the message of this turn came from."""
        envelope = self._envelope
        sender, lane, n = split_slot_key(envelope.slot) or (b"", 0, 0)
        source = envelope.source if envelope.kind != Kind.TIMEOUT else ""
        return MessageInfo(source or sender.hex(), (lane, n, envelope.index), envelope.id, envelope.topic)

    @property
    def attempt(self) -> int:
        """1 for the first try of this event, more after failures or crashes."""
        return max(1, self._envelope.attempts + (0 if self._live.precounted else 1))

    @property
    def turn_id(self) -> str:
        """The same however often this event is tried, and of no other turn: a key for outside systems."""
        return turn_id(self._live.id, self._live.generation, self._envelope)

    @property
    def fence(self) -> int:
        """Grows with every turn of this job, over all nodes: an outside system that remembers the highest
        and refuses lower ones is safe from a node that was paused."""
        if not self._fence:
            self._fence = self._turns.fences.next()
        return self._fence

    @property
    def now(self) -> datetime:
        """The node's time."""
        return datetime.fromtimestamp(self._turns.now_ms() / 1000, UTC)

    @property
    def nodes(self) -> "list[NodeInfo]":
        """The nodes that live, by id, with their load; as the node of this turn saw them a moment ago."""
        return sorted(self._turns.host.live_nodes(), key=lambda node: node.id)

    @property
    def log(self) -> Any:
        """A structlog logger that knows the job, its type and the turn."""
        import structlog  # when something is logged: it takes longer to import than all of a client

        return structlog.get_logger("tenure.job").bind(
            job=self._live.id, type=self._live.type_name, turn=self.turn_id, event_kind=self.event
        )

    @property
    def state(self) -> dict[str, Any]:
        """The durable state of a function-style job: a dict to change in place."""
        if self._state is None:
            raise Mistake("ctx.state is for jobs that are functions; a class keeps its state in its fields")
        return self._state

    # -- what it may ask for ----------------------------------------------------------------------

    def send(self, to: str, message: Any, *, id: str = "") -> None:
        """A message to another job (or to this one)."""
        self._add(self._turns.outgoing(to, message, Kind.MESSAGE, self._live.id, id))

    def publish(self, to: str | Topic, message: Any, *, id: str = "") -> None:
        """As a client's `publish`: a message to the job of this id, or to every subscriber of a `Topic`."""
        if isinstance(to, Topic):
            self._add(self._turns.outgoing(to.name, message, Kind.TOPIC, self._live.id, id))
        elif isinstance(to, str):
            self.send(to, message, id=id)
        else:
            raise Mistake(f"ctx.publish takes a job's id or a tenure.Topic, not {to!r}; `broadcast` takes a job type")

    def broadcast(self, type: Any, message: Any, *, id: str = "") -> None:
        """A message to every job of a type (a registered class or function, or its name)."""
        name = self._turns.host.registry.name_of(type)
        for partition in range(self._turns.partition_count):
            self._add(self._turns.outgoing(name, message, Kind.TYPE, self._live.id, id, partition))

    def subscribe(self, topic: str) -> None:
        """From now on, take what is published to this topic."""
        topics = self._live.topics if self._topics is None else self._topics
        if topic not in topics:
            self._topics = (*topics, topic)
            self._asks = self._asks_more = True
            self._add(self._turns.outgoing(topic, True, Kind.SUBSCRIBE, self._live.id, ""))

    def unsubscribe(self, topic: str) -> None:
        """No longer take what is published to this topic (what is on its way still comes)."""
        topics = self._live.topics if self._topics is None else self._topics
        if topic in topics:
            self._topics = tuple(other for other in topics if other != topic)
            self._asks = self._asks_more = True
            self._add(self._turns.outgoing(topic, False, Kind.SUBSCRIBE, self._live.id, ""))

    def wake_in(self, delay_s: float) -> None:
        """Wake (`on_timeout`) after so many seconds; replaces an earlier `wake_in` or `wake_at`."""
        self._set_timers((self._timers or NO_WISH)._replace(due_ms=due_in_ms(self._turns.now_ms(), delay_s)))

    def wake_at(self, when: datetime) -> None:
        """Wake at a time (with a time zone); replaces an earlier `wake_in` or `wake_at`."""
        self._set_timers((self._timers or NO_WISH)._replace(due_ms=due_at_ms(when)))

    def cron(self, expression: str, tz: str = "UTC") -> None:
        """Wake again and again, as a cron expression says on that zone's clock; replaces an earlier one. A time
        that has rung does not ring again."""
        check_cron(expression, tz)
        now_ms = self._turns.now_ms()
        next_cron_ms(expression, tz, now_ms)  # refused here, where the mistake is
        self._set_timers((self._timers or NO_WISH)._replace(cron=(expression, tz), asked_ms=now_ms))

    def cancel_wake(self) -> None:
        """Forget both kinds of timer."""
        self._set_timers(TimerWish(0, ("", "")))

    def finish(self) -> None:
        """This job is done: after this turn it is stopped (`on_stop`) and removed, as by `unschedule`."""
        self._finished = self._asks = self._asks_more = True

    def progress(self, done: int, total: int) -> None:
        """How far it is; seen by `describe`."""
        if total < 0 or not 0 <= done <= total:
            raise Mistake(f"progress is done of total, with 0 <= done <= total, not {done!r} of {total!r}")
        self._progress = (done, total)
        self._asks = self._asks_more = True

    def once(self, name: str, fn: Callable[[], Awaitable[Any] | Any]) -> Awaitable[Any]:
        """A durable step, to be awaited: `fn`'s result is journaled before it is returned, and a turn that runs
        again gets it from there instead of calling `fn` again. (A crash while `fn` runs does call it again.)"""
        if self._envelope.kind not in self._live.type.async_kinds:
            raise Mistake("ctx.once waits for the journal, so only an async handler can use it")
        turn = step_turn(self._live.id, self._live.generation, self._envelope)
        if self._steps_bytes < 0:
            self._steps_bytes = self._turns.steps_bytes(self._live, turn)
        return self._turns.once(self, turn, name, fn)

    # -- activities -------------------------------------------------------------------------------

    def start_activity(
        self,
        name: str,
        work: Any,
        *,
        kind: str = "process",
        retry: Retry | None = None,
        heartbeat_s: float = 5.0,
        cancel_deadline_s: float = 10.0,
        orphan_after_s: float = 120.0,
        timeout_s: float | None = None,
        stall_after_s: float | None = None,
        tells_progress: bool = False,
        healthy_after_s: float | None = None,
    ) -> str:
        """Long work that goes on outside this turn, and outside this node: a process that outlives the node's crash,
        upgrade or drain. It is launched once the turn is committed, by a node that can run its `kind`; one process at
        a time works on it (one that was frozen may wake up beside its successor, and is fenced). `work` is what the
        kind takes, made of what JSON can hold. Its end, and with `tells_progress` what it says meanwhile, comes to
        `on_activity`. Returns the activity's id.

        An attempt that fails, dies, takes longer than `timeout_s` or says nothing for `stall_after_s` is followed by
        the next, as `retry` says (three attempts, by default). For work without an end: one that has run for
        `healthy_after_s` counts as the first again. Cancelled, a process has `cancel_deadline_s` to end.
        One that can't reach the cluster for `orphan_after_s` ends by itself; only later would another machine try
        again. A name may be used again when its activity has ended.
        """
        retry = retry or Retry(attempts_max=3, first_delay_s=1.0)
        if retry.not_on:
            raise Mistake(f"activity {name!r}: retry.not_on is for handlers; an activity's program ends with a code")
        policy = ActivityPolicy(
            COUNT_MAX if retry.attempts_max is None else retry.attempts_max,
            retry.first_delay_s,
            retry.factor,
            retry.delay_max_s,
            heartbeat_s,
            cancel_deadline_s,
            orphan_after_s,
            timeout_s,
            stall_after_s,
            tells_progress,
            healthy_after_s,
        )
        live, host, limit = self._live, self._turns.host, self._turns.settings.message_bytes_max
        cluster = f"{host.formation}/{host.incarnation}"
        activity = begin(
            live.id, live.generation, self.turn_id, name, kind, work, policy, cluster=cluster, now_ms=host.now_ms()
        )
        if len(activity.work) > limit:
            raise TooLarge(f"the work of activity {name!r} has {len(activity.work)} bytes; the limit is {limit}")
        self._wish(("start", activity))
        return activity.id

    def cancel_activity(self, name: str) -> bool:
        """It is not wanted any more: its process is asked to end, and after its `cancel_deadline_s` made to. Its end
        comes to `on_activity`. False: there is none of this name that has not ended."""
        activity = self._activities().get(name)
        if activity is None or activity.has_ended:
            return False
        self._wish(("cancel", name))
        return True

    @property
    def activities(self) -> dict[str, str]:
        """The job's activities: wanted, running, cancelling, succeeded, failed or cancelled (of those that have ended,
        the latest eight)."""
        return {name: activity.outcome or activity.status for name, activity in self._activities().items()}

    def _activities(self) -> dict[str, Activity]:
        activities, _ = apply(self._live.activities, self._wishes or (), self._turns.now_ms())
        return {activity.name: activity for activity in activities}

    def _wish(self, wish: Wish) -> None:
        wishes = [*(self._wishes or ()), wish]
        apply(self._live.activities, wishes, self._turns.now_ms())  # refused here, where the mistake is
        self._wishes = wishes
        self._asks = self._asks_more = True

    def _set_timers(self, timers: TimerWish) -> None:
        self._timers = timers
        self._asks = self._asks_more = True

    # -- for Turns --------------------------------------------------------------------------------

    def _add(self, sent: tuple[Envelope, int]) -> None:
        if self._sends is None:
            self._sends = []
        self._sends.append(sent)
        self._asks = True
        envelope, limit = sent[0], self._turns.settings.turn_bytes_max
        its_bytes = ENVELOPE_BYTES + len(envelope.body) + len(envelope.to) + len(envelope.id) + len(envelope.source)
        self._sent_bytes = sent_bytes = self._sent_bytes + its_bytes
        if sent_bytes > limit:
            raise TurnTooLarge(
                f"this turn sends more than {limit} bytes in {len(self._sends)} messages (turn_bytes_max; a broadcast "
                "counts once for each partition): send in several turns, each of which sends the job its next"
            )

    def _work_bytes(self) -> int:
        """Of its job's activities, with those that are to be started."""
        if self._wishes is None:
            return 0
        started = sum(len(wish[1].work) for wish in self._wishes if wish[0] == "start")
        return started + sum(len(activity.work) for activity in self._live.activities)
