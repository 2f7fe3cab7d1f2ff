"""The guide's code runs, and does what the text says."""

import re
from pathlib import Path
from typing import Any

import pytest
import trio

import tenure
import tenure.scheduler.errors
from tenure.members import errors as members
from tenure.nodes import errors as nodes
from tenure.testing import Cluster

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


@pytest.fixture(scope="module")
def guide() -> dict[str, Any]:
    """All of the guide's Python, as one module with job types of its own."""
    names: dict[str, Any] = {"__name__": "guide"}
    code = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    with tenure.registry.collecting() as types:
        exec("\n".join(code), names)
    names["types"] = types
    return names


async def test_accounts_and_message_ids(guide: dict[str, Any], autojump_clock: Any) -> None:
    async with Cluster(app=guide["types"], partitions=7) as cluster, cluster.client() as client:
        await client.schedule(guide["Account"], id="ann", owner="Ann")
        await guide["pay"](client)
        state = await client.state("ann")
        assert (state.owner, state.balance, state.history) == ("Ann", 5, [5])


async def test_functions_have_a_dict(guide: dict[str, Any], autojump_clock: Any) -> None:
    async with Cluster(app=guide["types"], partitions=7) as cluster, cluster.client() as client:
        await client.schedule(guide["greet"], id="g")
        assert await client.ask("g", "Ann") == "hello Ann, number 1"
        assert await client.ask("g", "Bob") == "hello Bob, number 2"


async def test_states_are_upgraded(guide: dict[str, Any], autojump_clock: Any) -> None:
    with tenure.registry.collecting() as old:

        @tenure.job("device", version=1)
        class Device(tenure.Job):
            fahrenheit: float = 0.0

            def on_message(self, ctx: tenure.Context, message: float) -> None:
                self.fahrenheit = message

    async with Cluster(nodes=1, app=old, partitions=7) as cluster:
        async with cluster.client(registry=old) as client:
            await client.schedule(Device, id="d")
            await client.publish("d", 212.0)
            await trio.sleep(1)
        await cluster.add_node(app=guide["types"])
        await cluster.drain(0)
        async with cluster.client(registry=guide["types"]) as client:
            assert (await client.state("d")).celsius == pytest.approx(100)


async def test_long_work_is_an_activity(guide: dict[str, Any], autojump_clock: Any) -> None:
    types = tenure.Registry(*{type.name: type for type in (*tenure.registry, *guide["types"])}.values())
    async with Cluster(app=types, partitions=7) as cluster, cluster.client() as client:
        await client.schedule(guide["Importer"], id="i")
        await client.publish("i", {"file": "a.csv"})
        run = await cluster.launched()
        assert (run.work, run.kind) == ({"argv": ["load", "a.csv"]}, "process")
        await run.succeed({"rows": 3})
        assert (await client.state("i")).rows == 3


def test_the_program_runs_by_hand(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    guide["load"](["one", "two"])
    assert capsys.readouterr().err.splitlines()[-1] == 'report: {"result":{"rows":3}}'


async def test_commands_by_cron_and_after_each_other(guide: dict[str, Any], autojump_clock: Any) -> None:
    types = tenure.Registry(*{type.name: type for type in (*tenure.registry, *guide["types"])}.values())
    async with Cluster(app=types, partitions=7) as cluster, cluster.client() as client:
        await guide["every_night"](client)
        await trio.sleep(1)
        await cluster.advance(86_400)
        dump = await cluster.launched()
        assert (dump.job, dump.work["argv"][0]) == ("dump", "pg_dump")
        await dump.succeed()
        assert (await cluster.launched()).job == "copy"


async def test_snapshots_bring_jobs_back(
    guide: dict[str, Any], autojump_clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "memory:guide"
    monkeypatch.chdir(tmp_path)  # it writes a file there
    async with Cluster(app=guide["types"], partitions=7) as cluster, cluster.client() as client:
        await client.schedule(guide["Account"], id="ann", owner="Ann")
        await guide["pay"](client)
        await client.state("ann")
        await guide["keep"](client, place)
        assert "Ann" in (tmp_path / "jobs.jsonl").read_text()
    async with Cluster(app=guide["types"], partitions=5) as cluster, cluster.client() as client:
        await guide["come_back"](client, place)
        assert (await client.state("ann")).balance == 5


async def test_many_accounts_at_once(guide: dict[str, Any], autojump_clock: Any) -> None:
    async with Cluster(app=guide["types"], partitions=7) as cluster, cluster.client() as client:
        await guide["open_accounts"](client, ["Ann", "Bob"])
        assert [(await client.state(id)).owner for id in ("ann", "bob")] == ["Ann", "Bob"]


async def test_a_trial_that_is_not_paid_for_ends(guide: dict[str, Any], autojump_clock: Any) -> None:
    async with Cluster(app=guide["types"], partitions=7) as cluster, cluster.client() as client:
        for id in ("t1", "t2"):
            await client.schedule(guide["Trial"], id=id)
        await trio.sleep(1)
        assert await client.topics() == {"news": 2}
        await client.publish("t1", "paid")
        await trio.sleep(1)
        assert await client.topics() == {"news": 1}
        await cluster.advance(15 * 86_400)
        await trio.sleep(1)
        assert [job["id"] for job in await client.jobs()] == ["t1"]
        assert (await client.state("t1")).paid


TEXT = GUIDE.read_text()


def public(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("cls", "called"), [(tenure.Client, "client"), (tenure.Context, "ctx"), (Cluster, "cluster")])
def test_every_method_is_named(cls: type, called: str) -> None:
    whole = {name for name in public(cls) if re.search(rf"\b{called}\.{name}\b", TEXT)}
    rest = {name for name in public(cls) - whole if re.search(rf"`{name}[`(]", TEXT)}
    # What is done in a turn is said with `ctx.`, as clients have methods of the same names.
    assert public(cls) - whole - (set() if called == "ctx" else rest) == set()


def errors() -> set[str]:
    """All that `tenure` exports."""
    found = {name: getattr(tenure, name) for name in tenure.__all__}
    return {name for name, it in found.items() if isinstance(it, type) and issubclass(it, tenure.TenureError)}


def test_every_error_is_in_the_table_of_its_family() -> None:
    section = TEXT.partition("\n## Errors\n")[2].partition("\nWhat a node or a member ends with")[0]
    families = {"try again": tenure.TryAgain, "final": tenure.Final, "mistake": tenure.Mistake}
    tables = {
        title: {
            name
            for cell in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
            for name in cell.strip("`").split("`, `")
        }
        for title, table in re.findall(
            r"^\| ([a-z ]+) \| means \|[^\n]*\n(.*?)(?:^$|\Z)", section, re.MULTILINE | re.DOTALL
        )
    }
    roots = {"TenureError", "TryAgain", "Final", "Mistake"}
    assert set(tables) == set(families)
    assert {
        title: {name for name in errors() - roots if issubclass(getattr(tenure, name), family)}
        for title, family in families.items()
    } == tables
    assert {name for name in roots if f"`{name}`" not in section} == set()
    assert set(tenure.scheduler.errors.__all__) <= errors()


def test_what_nodes_and_members_end_with_is_told() -> None:
    told = {
        name
        for cells in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ", TEXT.rpartition("| error | means |")[2], re.MULTILINE)
        for name in re.findall(r"\w+", cells)
    }
    bases = {"NodeError", "MemberError"}
    assert told == (set(nodes.__all__) | set(members.__all__) | {"CannotConnect"}) - bases
