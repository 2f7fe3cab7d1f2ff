"""Turn ids: the same however often an event is tried, wherever, and of no other turn."""

from datetime import UTC, datetime

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from tenure.scheduler.assignment import NodeInfo
from tenure.scheduler.context import Context
from tenure.scheduler.jobtype import Job, JobType
from tenure.scheduler.keys import partition_sender, slot_key
from tenure.scheduler.turnid import step_turn, turn_id
from tenure.scheduler.wire import Envelope, JobRecord, Kind, Record, RecordKind, Status
from tests.pure.core import bench as benches
from tests.pure.core.bench import Bench, Kill9, rest

PAST = datetime(2020, 1, 1, tzinfo=UTC)
seen: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


class Told(Job):
    """Says what its turns are called."""

    def on_start(self, ctx: Context) -> None:
        seen.append(ctx.turn_id)

    def on_resume(self, ctx: Context) -> None:
        seen.append(ctx.turn_id)

    def on_message(self, ctx: Context, message: str) -> None:
        seen.append(ctx.turn_id)
        if message == "send":
            ctx.send("b", "sent")
        elif message == "wake":
            ctx.wake_at(PAST)
        elif message == "tick":
            ctx.cron("* * * * * *")
        elif message == "die" and ctx.attempt == 1:
            raise Kill9

    def on_timeout(self, ctx: Context) -> None:
        seen.append(ctx.turn_id)
        assert ctx.message.sender == ""
        ctx.cancel_wake()

    def on_stop(self, ctx: Context) -> None:
        seen.append(ctx.turn_id)


TOLD = JobType("told", Told)


async def test_no_two_turns_are_called_alike_though_their_clusters_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same is done, at the same times, in two clusters."""
    for formation in ("cluster1", "cluster2"):
        monkeypatch.setattr(benches, "FORMATION", formation)
        async with trio.open_nursery() as nursery:
            bench = Bench(nursery)
            bench.skew_ms = -round(trio.current_time() * 1000)
            first = await bench.open(TOLD)
            await bench.define("a", "told")
            await bench.define("b", "told")
            await rest(1)
            for message in ("send", "wake", "wake", "tick"):
                await bench.publish("a", message)
                await rest(2)
            await first.close()
            await bench.open(TOLD)
            await rest(2)
            await bench.define("a", "told", revision=2, wanted="removed")
            await rest(2)
            nursery.cancel_scope.cancel()
    assert len(seen) == 2 * 13
    assert len(set(seen)) == len(seen)
    assert {turn.split("/")[2] for turn in seen} == {"cluster1", "cluster2"}


async def test_two_timers_of_one_time_are_two_turns(bench: Bench) -> None:
    await bench.open(TOLD)
    await bench.define("a", "told")
    for _ in range(2):
        await bench.publish("a", "wake")
        await rest(1)
    timeouts = [turn for turn in seen if "timeout" in turn]
    assert len(timeouts) == len(set(timeouts)) == 2
    assert {turn.rpartition("@")[2] for turn in timeouts} == {str(round(PAST.timestamp() * 1000))}


async def test_a_turn_that_is_tried_again_elsewhere_is_called_the_same(bench: Bench) -> None:
    await bench.open(TOLD)
    await bench.define("a", "told")
    await rest(1)
    await bench.publish("a", "die")
    await rest(1)
    await bench.open(TOLD)
    await rest(10)
    tried = [turn for turn in seen if "started" not in turn and "resumed" not in turn]
    assert len(tried) == 2
    assert len(set(tried)) == 1


class Dying(Job):
    """Its timer is set by one turn; another kills the node as it rings, before any of it is committed."""

    def on_message(self, ctx: Context, message: int) -> None:
        ctx.wake_at(PAST)

    def on_timeout(self, ctx: Context) -> None:
        seen.append(ctx.turn_id)
        if len(seen) == 1:
            raise Kill9


async def test_a_timer_that_rings_again_as_its_ring_was_lost_is_called_the_same(bench: Bench) -> None:
    await bench.open(JobType("dying", Dying))
    await bench.define("a", "dying")
    await rest(1)
    await bench.publish("a", 1)
    await rest(1)
    await bench.open(JobType("dying", Dying))
    await rest(10)
    assert len(seen) == 2
    assert len(set(seen)) == 1


# -- versions -----------------------------------------------------------------------------------------


async def test_while_a_node_of_an_older_version_lives_turns_are_called_as_it_calls_them(bench: Bench) -> None:
    nodes = [NodeInfo("older", 1)]
    opened = await bench.open(TOLD)
    opened.tenure.host.live_nodes = lambda: nodes
    await rest(2)
    await bench.define("a", "told")
    await bench.publish("a", "wake")
    await rest(2)
    n = f"{benches.CLIENT.hex()}.1.0.0"
    assert seen == ["a/1/started", f"a/1/{n}", f"a/1/timeout@{round(PAST.timestamp() * 1000)}"]
    nodes[:] = [NodeInfo("newer", 1, names=True)]
    await rest(2)
    await bench.publish("a", "x")
    await rest(2)
    assert seen[-1] == f"a/1/{benches.FORMATION}/{benches.CLIENT.hex()}.1.1.0"


class Stepping(Job):
    results: list[str] = []

    async def on_message(self, ctx: Context, message: int) -> None:
        seen.append(ctx.turn_id)
        self.results.append(await ctx.once("step", lambda: "done by the newer version"))


@pytest.mark.parametrize("origin", ["", "test"])
async def test_a_step_that_an_older_version_journaled_is_found_again(bench: Bench, origin: str) -> None:
    """`origin`: was its message taken by this version before the older one had it?"""
    journal = await bench.opened_journal()
    slot = slot_key(benches.CLIENT, 1, 0)
    message = bench.message("a", 1, slot=slot, origin=origin)
    record = Record("r", "", RecordKind.TURNS, 1, "older", 0, mailed={"a": [message]})
    record.cursors = {benches.CLIENT: (1, 1)}
    done = msgpack.encode("done by the older version")
    record.steps = [("a", f"a/1/{benches.CLIENT.hex()}.1.0.0", "step", done)]
    record.jobs = {"a": JobRecord("stepping", 1, 1, 1, Status.RUNNING, b"\x80")}
    await journal.commit(record)
    await bench.define("a", "stepping")
    await bench.open(JobType("stepping", Stepping))
    bench._sent = 1
    assert (await bench.state_of("a"))["results"] == ["done by the older version"]
    assert seen == [f"a/1/{origin}/{benches.CLIENT.hex()}.1.0.0" if origin else f"a/1/{benches.CLIENT.hex()}.1.0.0"]


def test_an_event_of_before_keeps_the_name_that_it_had() -> None:
    slot = slot_key(partition_sender(5), 1, 7)
    for envelope, name in (
        (Envelope("a", slot=slot, index=3), "a/2/0070617200000005.1.7.3"),
        (Envelope("a", kind=Kind.TIMEOUT, index=9, source="1f"), "a/2/timeout@9"),
        (Envelope("a", kind=Kind.CRON, index=9), "a/2/cron@9"),
        (Envelope("a", kind=Kind.RESUMED, index=4), "a/2/resumed@4"),
        (Envelope("a", kind=Kind.ACTIVITY, source="x.1.ended.0"), "a/2/activity@x.1.ended.0"),
        (Envelope("a", kind=Kind.START), "a/2/started"),
        (Envelope("a", kind=Kind.STOP), "a/2/stopped"),
    ):
        assert turn_id("a", 2, envelope) == name
        envelope.origin = "f"
        assert turn_id("a", 2, envelope) != name
        assert step_turn("a", 2, envelope) == name, "steps are known by it in all versions"


@given(st.data())
def test_different_events_have_different_names(data: st.DataObject) -> None:
    few = st.integers(0, 2)
    drawn = [
        (
            data.draw(few),
            data.draw(st.sampled_from((Kind.MESSAGE, Kind.START, Kind.STOP, Kind.RESUMED, Kind.TIMEOUT, Kind.CRON))),
            data.draw(few),
            data.draw(few),
            data.draw(st.sampled_from(("f", "g"))),
        )
        for _ in range(20)
    ]
    names: dict[str, object] = {}
    for generation, kind, index, which, origin in drawn:
        envelope = Envelope("a", kind=kind, origin=origin)
        if kind == Kind.MESSAGE:
            envelope.slot = slot_key(partition_sender(which), 1, 1)
        if kind == Kind.TIMEOUT:
            envelope.source = f"{which + 1:x}"
        if kind not in (Kind.START, Kind.STOP):
            envelope.index = index
        event = (generation, kind, envelope.index, envelope.slot, envelope.source, origin)
        assert names.setdefault(turn_id("a", generation, envelope), event) == event


def test_a_message_that_came_in_no_slot_has_a_name_too() -> None:
    """What an older version has left, say; and a name never changes."""
    assert step_turn("a", 1, Envelope("a")) == "a/1/.0.0.0"
    assert turn_id("a", 1, Envelope("a", index=7, origin="o")) == "a/1/o/.0.0.7"
