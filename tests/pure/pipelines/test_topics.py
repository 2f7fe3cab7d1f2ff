"""Topics as sources and sinks of pipelines: between the topic and the files that the driver sees, by fake drivers."""

import json
import shutil
from types import SimpleNamespace

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import tenure
from tenure.jobs.pipelines import Grep, Pipeline, Sink, Text, TopicSource
from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.pipelines.growing import Place
from tenure.jobs.pipelines.topics import TopicFiles, read_some, write_messages
from tenure.jobs.spark import types
from tenure.jobs.spark.types import PipelineJob, parameters
from tenure.testing import Cluster


@tenure.job("test-listener")
class Listener(tenure.Job):
    heard: list[str] = []

    def on_start(self, ctx: tenure.Context) -> None:
        ctx.subscribe("results")

    def on_message(self, ctx: tenure.Context, message: dict[str, str]) -> None:
        self.heard.append(message["value"])


def pipeline(tmp_path, source, **sink):
    return Pipeline(name="p", source=source, stages=[Grep("a")], sink=Sink(**sink), folder=str(tmp_path))


def lines(files, places=None):
    return [(line.key, line.text) for line in files.new_lines(places or {})]


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), max_size=10), st.randoms(use_true_random=False))
def test_messages_are_read_once_each_however_often_they_are_written(tmp_path_factory, groups, luck):
    state = tmp_path_factory.mktemp("state")
    files, places, found, committed, pending = TopicFiles(state, "t"), {}, [], 0, []
    number = 0
    for group in groups:
        pending += [str(number + offset) for offset in range(group)]
        number += group
        count = write_messages(state, committed, pending)
        if luck.random() < 0.6:  # else the turn was not committed, and is tried again, with what has come meanwhile
            committed, pending = committed + count, pending[count:]
        for line in files.new_lines(places):
            found.append(line.text)
            places[line.file] = line.place
        if luck.random() < 0.5:
            files.forget(places)
    assert found == [str(number) for number in range(len(found))]
    assert len(found) >= committed


class Owners:
    """A pipeline's job between the topic and its files: turns run in a draft that is committed, or lost with its owner.
    What a turn sends arrives when it is committed; lanes are taken in any order."""

    def __init__(self, job):
        self.committed = (msgspec.json.encode(job), 0, 0)
        self.to_itself = []
        self.lose()

    def lose(self):
        state, self.topic_at, self.own_at = self.committed
        self.job, self.sent = msgspec.json.decode(state, type=PipelineJob), []

    def commit(self):
        self.committed = (msgspec.json.encode(self.job), self.topic_at, self.own_at)
        self.to_itself += self.sent
        self.sent = []

    def take(self, message, topic=None):
        ctx = SimpleNamespace(
            id="p", message=SimpleNamespace(topic=topic), send=lambda to, message: self.sent.append(message)
        )
        self.job.on_message(ctx, message)

    def take_from_topic(self):
        self.take(self.topic_at, "orders")
        self.topic_at += 1

    def take_own(self):
        if self.own_at < len(self.to_itself):
            self.take(self.to_itself[self.own_at])
            self.own_at += 1


STEPS = ["take_from_topic", "take_own", "commit", "lose"]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(STEPS), max_size=40), st.integers(0, 3))
def test_messages_are_in_files_once_whichever_drafts_are_lost(tmp_path_factory, steps, chars_max):
    folder = tmp_path_factory.mktemp("p")
    declared = pipeline(folder, TopicSource("orders"), text="out")
    owners = Owners(PipelineJob(**parameters(declared)))
    files, places, found = TopicFiles(declared.state_folder, "orders"), {}, []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(types, "UNWRITTEN_CHARS_MAX", chars_max)
        for step in [*steps, "commit", *["take_own", "commit"] * len(steps)]:
            getattr(owners, step)()
            for line in files.new_lines(places):
                found.append(line.text)
                places[line.file] = line.place
    assert found == [str(number) for number in range(owners.topic_at)]
    assert (owners.job.taken, owners.job.untaken) == (owners.topic_at, [])


def test_a_gap_is_waited_for(tmp_path):
    files = TopicFiles(tmp_path, "t")
    write_messages(tmp_path, 2, ["2"])
    assert lines(files) == []
    write_messages(tmp_path, 0, ["0", "1"])
    assert lines(files) == [("t:0", "0"), ("t:1", "1"), ("t:2", "2")]
    assert lines(files, {"t": Place(0, 1)}) == [("t:1", "1"), ("t:2", "2")]


def test_results_are_read_in_parts(tmp_path):
    (tmp_path / "part").write_text("1\n2\n3\n")
    assert read_some(tmp_path / "part", 0, 2) == ([b"1\n", b"2\n"], 4)
    assert read_some(tmp_path / "part", 4, 2) == ([b"3\n"], 6)
    assert read_some(tmp_path / "part", 6, 2) == ([], 6)
    assert read_some(tmp_path / "nowhere", 0, 2) == ([], 0)


async def test_what_is_published_to_the_topic_is_in_files_once(tmp_path, autojump_clock):
    declared = pipeline(tmp_path, TopicSource("orders"), text="out")
    async with Cluster(partitions=4) as cluster, cluster.client() as client:
        await client.schedule(PipelineJob, id="p", **parameters(declared), on_demand=True)
        await client.state("p")
        for number in range(50):
            await client.publish(tenure.Topic("orders"), {"n": number})
            if number == 20:
                await cluster.kill((await cluster.nodes())[0])
                await cluster.add_node()
        state = await client.state("p")
        while state.taken < 50:
            await client.publish("p", {"write": True})
            state = await client.state("p")
        assert state.untaken == []
    found = lines(TopicFiles(declared.state_folder, "orders"))
    assert found == [(f"orders:{number}", json.dumps({"n": number}, separators=(",", ":"))) for number in range(50)]


async def test_results_of_a_batch_are_published_once(tmp_path, autojump_clock):
    declared = pipeline(tmp_path, Text("in"), topic="results")
    (tmp_path / "in").write_text("a\n")
    parts = [tmp_path / "part-0", tmp_path / "part-1"]
    for number, part in enumerate(parts):
        values = range(number * 1200, (number + 1) * 1200)
        part.write_text("".join(json.dumps({"key": "k", "value": str(value)}) + "\n" for value in values))
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Listener, id="listener")
        await client.state("listener")
        await client.schedule(PipelineJob, id="p", **parameters(declared))
        run = await cluster.launched()
        await run.succeed({"topic_results": [str(part) for part in parts]})
        state = await client.state("p")
        while state.outgoing or state.published:
            state = await client.state("p")
        heard = (await client.state("listener")).heard
    assert heard == [str(number) for number in range(2400)]
    assert not any(part.exists() for part in parts)


async def test_results_of_a_stream_are_published_as_its_batches_come(tmp_path, autojump_clock):
    declared = pipeline(tmp_path, Text("in", stream=True), topic="results")
    folder = declared.state_folder / "results"
    folder.mkdir(parents=True)
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Listener, id="listener")
        await client.state("listener")
        await client.schedule(PipelineJob, id="p", **parameters(declared))
        run = await cluster.launched()
        for number in (0, 2):  # batch 1 had no results
            (folder / f"part-{number:09}").write_text(json.dumps({"key": "k", "value": str(number)}) + "\n")
            await run.report(metrics={"batches_done": number + 1})
        await trio.sleep(10)
        assert (await client.state("listener")).heard == ["0", "2"]
        await run.succeed({"batches_done": 3})
        state = await client.state("p")
        assert (await client.state("listener")).heard == ["0", "2"]
        assert state.batches == 3
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("how", ["failed", "retrying", "cancelled"])
async def test_results_of_a_stream_are_published_whatever_becomes_of_its_run(tmp_path, autojump_clock, how):
    declared = pipeline(tmp_path, Text("in", stream=True), topic="results")
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Listener, id="listener")
        await client.state("listener")
        await client.schedule(PipelineJob, id="p", **parameters(declared))
        run = await cluster.launched()
        result_file(declared, 0)
        if how == "cancelled":
            run.ignores_cancel()
            assert await client.ask("p", {"cancel": True}) == {"cancelled": True}
            await run.told_to_end()
        await run.report(metrics={"batches_done": 1})  # it comes with the end
        await run.fail("broken", final=how == "failed")
        assert await heard(client, 1) == ["0"]


async def heard(client, count):
    """What the listener has heard, when it is so much."""
    with trio.fail_after(60):
        while len(found := (await client.state("listener")).heard) < count:  # noqa: ASYNC110
            await trio.sleep(0.1)
    await trio.sleep(5)
    assert (await client.state("listener")).heard == found
    return found


def result_file(declared, number, value=None):
    folder = declared.state_folder / "results"
    folder.mkdir(parents=True, exist_ok=True)
    value = str(number) if value is None else value
    (folder / f"part-{number:09}").write_text(json.dumps({"key": "k", "value": value}) + "\n")


async def test_an_order_may_name_another_sink(tmp_path, autojump_clock):
    (tmp_path / "in").write_text("a\n")
    to_file, to_topic = {"sink": {"text": "out"}}, {"sink": {"topic": "results"}}
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Listener, id="listener")
        await client.state("listener")
        for id, sink in {"file": {"text": "out"}, "topic": {"topic": "results"}}.items():
            declared = pipeline(tmp_path, Text("in"), **sink)
            await client.schedule(PipelineJob, id=id, **parameters(declared), on_demand=True, overlap="queue")
            for order in (to_file, to_topic, to_file):
                await client.ask(id, {"start": order})
            for order in (to_file, to_topic, to_file):
                with trio.fail_after(60):
                    run = await cluster.launched()
                assert run.work["pipeline"]["sink"] == order["sink"]
                (tmp_path / "part").write_text(json.dumps({"key": "k", "value": id}) + "\n")
                done = {"topic_results": [str(tmp_path / "part")]} if order == to_topic else {"records": 1}
                await run.succeed(done)
            assert (await client.state(id)).last.activity == "run-3"
        assert await heard(client, 2) == ["file", "topic"]


async def test_an_order_may_make_a_stream_of_it_and_name_another_state(tmp_path, autojump_clock):
    declared = pipeline(tmp_path, Text("in"), text="out")
    other = structs.replace(declared, state="other")
    order = {"source": {"text": "in", "stream": True}, "sink": {"topic": "results"}, "state": "other"}
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Listener, id="listener")
        await client.state("listener")
        await client.schedule(PipelineJob, id="p", **parameters(declared), on_demand=True)
        await client.ask("p", {"start": order})
        run = await cluster.launched()
        result_file(other, 0)
        await run.report(metrics={"batches_done": 1})
        assert await heard(client, 1) == ["0"]
        await run.succeed({"batches_done": 1})


async def test_a_stream_that_begins_anew_or_goes_on_is_published_from_where_it_is(tmp_path, autojump_clock):
    declared = pipeline(tmp_path, Text("in", stream=True), topic="results")
    other = structs.replace(declared, state="other")
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(Listener, id="listener")
        await client.state("listener")
        await client.schedule(PipelineJob, id="p", **parameters(declared), on_demand=True)

        async def run(pipeline, stream, first, last):
            await client.ask("p", {"start": {"state": pipeline.state or str(pipeline.state_folder)}})
            run = await cluster.launched()
            for number in range(first, last):
                result_file(pipeline, number, f"{stream}{number}")
            await run.report(info={"stream": stream}, metrics={"batches_done": last})
            await run.succeed({"batches_done": last})
            await trio.sleep(5)

        await run(declared, "a", 0, 3)
        await run(other, "b", 0, 1)
        await run(declared, "a", 3, 4)
        shutil.rmtree(declared.state_folder)
        await run(declared, "c", 0, 2)
        assert await heard(client, 7) == ["a0", "a1", "a2", "b0", "a3", "c0", "c1"]


async def test_results_of_a_state_that_was_removed_are_not_taken_for_those_of_its_successor(tmp_path):
    declared = pipeline(tmp_path, Text("in", stream=True), topic="results")
    folder = declared.state_folder / "results"
    stale, others = str(folder / "part-000000000"), str(tmp_path / "others")
    job = PipelineJob(**parameters(declared), stream="a", batches=1, outgoing=[stale, others], outgoing_at=7)
    job._follow("b", folder)
    assert (job.stream, job.batches, job.outgoing, job.outgoing_at) == ("b", 0, [others], 0)
    job._follow("a", folder)
    assert (job.stream, job.batches, job.outgoing) == ("a", 1, [others])


OTHER = "read topic 'others', which its job does not take messages of: schedule another job"


@pytest.mark.parametrize(
    ("source", "order", "refusal"),
    [
        (TopicSource("orders"), {"source": {"topic": "others"}}, OTHER),
        (Text("in"), {"source": {"topic": "others"}}, OTHER),
        (TopicSource("orders"), {"state": "other"}, r"messages of its topic are kept in .*/\.p\.state"),
        (TopicSource("orders"), {"source": {"topic": "orders", "rate": 5.0}}, None),
        (TopicSource("orders"), {"source": {"text": "in"}, "state": "other"}, None),
    ],
)
def test_an_order_can_not_change_where_messages_of_a_topic_are_kept(tmp_path, source, order, refusal):
    job = PipelineJob(**parameters(pipeline(tmp_path, source, text="out")))
    if refusal is None:
        assert job.work(order)["pipeline"] == {**job.pipeline, **order}
    else:
        with pytest.raises(BadOption, match=refusal):
            job.work(order)


@pytest.mark.parametrize(("stream", "run_s", "attempts"), [(True, 700, 6), (True, 10, 3), (False, 700, 3)])
async def test_failures_of_a_stream_that_are_far_apart_do_not_end_it(tmp_path, autojump_clock, stream, run_s, attempts):
    declared = pipeline(tmp_path, Text("in", stream=stream), text="out")
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(PipelineJob, id="p", **parameters(declared))
        for attempt in range(1, attempts + 1):
            with trio.fail_after(100):
                run = await cluster.launched()
            assert run.attempt == attempt
            await trio.sleep(run_s)
            await run.fail("broken")
        await trio.sleep(100)
        (activity,) = (await client.describe("p"))["activities"]
    assert (activity["attempt"], activity["status"]) == ((7, "running") if attempts == 6 else (3, "failed"))


async def test_orders_still_are(tmp_path, autojump_clock):
    declared = pipeline(tmp_path, Text("in"), text="out")
    async with Cluster(nodes=1, partitions=4) as cluster, cluster.client() as client:
        await client.schedule(PipelineJob, id="p", **parameters(declared), on_demand=True)
        assert await client.ask("p", {"start": {"source": {"text": "other"}}}) == {"started": "run-1"}
        run = await cluster.launched()
        assert run.work["pipeline"]["source"] == {"text": "other"}
        assert await client.ask("p", {"cancel": True}) == {"cancelled": True}
        with pytest.raises(tenure.JobFailed, match="is an order"):
            await client.ask("p", {"strat": {}})
