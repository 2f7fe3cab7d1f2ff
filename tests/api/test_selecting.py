"""Selectors in Python: the jobs that one names, and what is done to all of them."""

import pytest
import trio

import tenure
from tenure.testing import Cluster
from tests.api.jobs import Counter, Script, step

BREAKS = step(lambda job, ctx: 1 / 0)


async def ids(client: tenure.Client, selector: str) -> list[str]:
    return [job["id"] for job in await client.jobs(selector)]


@pytest.mark.tenure(nodes=2)
async def test_jobs_by_selector(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Counter, f"c{n}", {}) for n in range(3)])
    await client.schedule(Script, id="s")
    assert await ids(client, "type=api-counter and not id=c1") == ["c0", "c2"]
    assert await ids(client, "") == ["c0", "c1", "c2", "s"]
    assert await ids(client, "c?") == ["c0", "c1", "c2"]
    assert sorted(await ids(client, "node=node-0") + await ids(client, "node=node-1")) == ["c0", "c1", "c2", "s"]
    with pytest.raises(tenure.BadSelector, match="column 8"):
        await client.jobs("type=a adn b")


async def test_what_is_done_to_all(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule_many([(Counter, f"c{n}", {}) for n in range(3)])
    assert await client.do_to_all("pause", "type=api-counter") == ["c0", "c1", "c2"]
    assert await ids(client, "state=paused") == ["c0", "c1", "c2"]
    assert await client.do_to_all("resume", "id=c1") == ["c1"]
    assert await client.do_to_all("cancel", "c1") == ["c1"]
    assert await ids(client, "state=paused") == ["c0", "c1", "c2"]
    assert await client.do_to_all("pause", "id=nobody") == []
    with pytest.raises(tenure.UnknownJob, match="there is no job 'nobody'"):
        await client.do_to_all("pause", "nobody")
    with pytest.raises(tenure.Mistake, match="say which jobs"):
        await client.do_to_all("pause", " ")


async def test_only_what_has_failed_is_tried_again(cluster: Cluster, client: tenure.Client) -> None:
    await client.schedule(Counter, id="fine")
    await client.schedule(Script, id="broken")
    await client.publish("broken", BREAKS)
    await trio.sleep(900)
    assert await ids(client, "state=failed") == ["broken"]
    assert await client.do_to_all("retry", "id=*") == ["broken"]
    await trio.sleep(900)
    assert await client.do_to_all("skip", "id=*") == ["broken"]
    assert await ids(client, "state=failed") == []
    assert [letter["to"] for letter in await client.dead_letters()] == ["broken"]


async def test_errors_come_when_all_others_are_done(
    cluster: Cluster, client: tenure.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.clients import operations, selecting

    async def pause(core: object, id: str, timeout_s: float | None) -> None:
        if id != "c2":
            raise tenure.NotDone(f"pausing {id}")
        await operations.pause(core, id, timeout_s)  # type: ignore[arg-type]

    monkeypatch.setitem(selecting._ACTIONS, "pause", pause)
    await client.schedule_many([(Counter, f"c{n}", {}) for n in range(3)])
    with pytest.raises(tenure.NotDone, match="pausing c0") as raised:
        await client.do_to_all("pause", "id=c*")
    assert raised.value.__notes__ == ["2 of 3 jobs could not be changed; the others were"]
    assert await ids(client, "state=paused") == ["c2"]


@pytest.mark.tenure(nodes=3)
async def test_nodes_are_selected_as_by_the_command(cluster: Cluster, client: tenure.Client) -> None:
    await client.drain("node-1")
    assert [info.id for info in await client.nodes()] == ["node-0", "node-1", "node-2"]
    assert [info.id for info in await client.nodes("state=running and not node=node-2")] == ["node-0"]
    assert [info.id for info in await client.nodes("node-1")] == ["node-1"]
    assert await client.nodes("node=nobody") == []
    with pytest.raises(tenure.BadSelector):
        await client.nodes("state=asleep")
    assert await client.plan_upgrade() == ["node-0", "node-1", "node-2"]
    assert await client.plan_upgrade(nodes=[info.id for info in await client.nodes("state=draining")]) == ["node-1"]
    with pytest.raises(tenure.UnknownNode):
        await client.plan_upgrade(nodes=["nobody"], spawn="tenure node app.py")
