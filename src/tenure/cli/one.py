"""Commands for one job: schedule, ask, state, describe."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tenure.cli.connection import connected
from tenure.cli.ends import Exit, Failed, Unreachable, Usage
from tenure.cli.options import USUAL_CONNECTION, Connection
from tenure.cli.show import print_described, print_json, print_value, say

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient

__all__ = [
    "ask",
    "borrow_type",
    "check_started",
    "describe",
    "no_constant",
    "parse_json",
    "schedule",
    "state",
]

NODE_PATIENCE_S = 10.0
FIRST_TURN_S = 3.0
"""How long a job's first turn may be waited for, to be seen failing. A node may have others to run before it."""
FIRST_TURN_POLL_S = 0.02
CHECK_S = 5.0
MOVE_S, MOVE_POLL_S = 15.0, 0.2
"""A job whose type its node does not know moves, with its partition, to one that does."""


def schedule(
    type: str,
    id: str,
    /,
    *parameters: str,
    params: str | None = None,
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Make a job. The same job again is fine; another definition under its id is refused.

    Parameters
    ----------
    type
        The name of a job type that the nodes know.
    id
        The job's id, which is also its address.
    parameters
        NAME=VALUE of the job's fields. Values are JSON; what is no JSON is text.
    params
        All parameters as one JSON object.
    """
    given = _parameters(parameters, params)

    async def run() -> None:
        async with connected(connection) as client:
            if not connection.app:
                await borrow_type(client, type)
                await check_parameters(client, type, id, given)
            await client.defining.schedule(type, id, given)
            if not connection.app:
                await check_started(client, id)
                await _wait_subscribed(client, id)

    _run(run)
    _done(connection, {"scheduled": id}, f"Job {id} is scheduled.")
    return Exit.DONE


def ask(
    id: str,
    message: str,
    /,
    *,
    message_id: Annotated[str, Parameter(name="--id")] = "",
    connection: Connection = USUAL_CONNECTION,
) -> int:
    """Send a message and print what the job's handler returns, once that is committed.

    Parameters
    ----------
    id
        The job's id.
    message
        The message, as JSON.
    message_id
        An id of the message: asked again under the same, it has no second effect.
    """
    decoded = parse_json(message, "the message")

    async def run() -> Any:
        async with connected(connection) as client:
            return await client.ask(id, decoded, id=message_id)

    print_value(_run(run), json=connection.json)
    return Exit.DONE


def state(id: str, /, *, connection: Connection = USUAL_CONNECTION) -> int:
    """Print a job's state, as committed after this question.

    Parameters
    ----------
    id
        The job's id.
    """

    async def run() -> Any:
        async with connected(connection) as client:
            return await client.state(id)

    print_value(_run(run), json=connection.json)
    return Exit.DONE


def describe(id: str, /, *, connection: Connection = USUAL_CONNECTION) -> int:
    """Print all that is known of a job: state, timer, failure, activities, what waits.

    Parameters
    ----------
    id
        The job's id.
    """
    from tenure.scheduler.turnid import EVENTS

    async def run() -> Any:
        async with connected(connection) as client:
            return await client.directory.describe(id)

    found = _run(run)
    if connection.json:
        print_json(found)
    else:
        if waiting := found.get("first_waiting"):
            waiting["kind"] = EVENTS.get(waiting["kind"], "question")
        print_described(found, time.time_ns() // 1_000_000)
    return Exit.DONE


def parse_json(text: str, what: str) -> Any:
    """Raises `Usage`, with the place."""
    try:
        return json.loads(text, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        hint = """quote it for the shell, like '{"n": 1}'."""
        raise Usage(f"{what} is no JSON ({error}): {text[:80]!r}; {hint}") from error


def no_constant(name: str) -> Any:
    """For `json.loads`: NaN and its like are Python's."""
    raise ValueError(f"{name} is not JSON")


def _parameters(pairs: tuple[str, ...], params: str | None) -> dict[str, Any]:
    given = parse_json(params, "--params") if params else {}
    if not isinstance(given, dict):
        raise Usage("--params must be a JSON object, like '{\"total\": 10}'.")
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Usage(f"{pair!r} is no parameter: write NAME=VALUE.")
        try:
            given[name] = json.loads(value, parse_constant=no_constant)
        except (ValueError, RecursionError):
            given[name] = value
    return given


async def check_parameters(client: "GridClient", type: str, id: str, parameters: dict[str, Any]) -> None:
    """Have them checked by a node that knows the type, before anything is made. Raises `WrongType`."""
    from tenure.scheduler.errors import AskFailed, NotDone
    from tenure.scheduler.keys import checked_address, partition_of
    from tenure.scheduler.nodes_seen import said_nodes

    nodes = [node for node in await said_nodes(client.grid) if type in node.types and node.owned]
    owner = partition_of(checked_address(id), client.partition_count)
    for partition in (owner, *(node.owned[0] for node in nodes)):
        try:
            if await client.command(
                partition, "", {"op": "check", "type": type, "parameters": parameters}, deadline_s=CHECK_S
            ):
                return
        except (AskFailed, NotDone):
            continue  # of an older version, or gone: then the job's first turn shows it


async def check_started(client: "GridClient", id: str) -> None:
    """What nobody could check before, its first turn shows."""
    import trio

    from tenure.scheduler.errors import UnknownJob

    try:
        seen = await client.directory.describe(id)
        with trio.move_on_after(FIRST_TURN_S):
            while _is_to_start(seen):
                await trio.sleep(FIRST_TURN_POLL_S)
                seen = await client.directory.describe(id)
        with trio.move_on_after(MOVE_S):
            # Its partition goes to a node that knows the type: there is one, or it would not have been scheduled.
            while seen["stuck"].startswith("UnknownJobType"):
                await trio.sleep(MOVE_POLL_S)
                seen = await client.directory.describe(id)
    except UnknownJob:
        return  # it was made, and has finished already
    failure = seen["failure"]
    of_start = failure and failure["event"].rpartition("/")[2] == "started"  # of a turn's id; or no turn could begin
    problem = seen["stuck"] or (failure["error"] if of_start else "")
    if problem:
        raise Failed(f"Job {id} is scheduled, but does not start: {problem}. `tenure unschedule {id}` removes it.")


async def _wait_subscribed(client: "GridClient", id: str) -> None:
    """Which topics it has is known to nobody here; one that takes long to start is not waited for."""
    import trio

    with trio.move_on_after(FIRST_TURN_S):
        await client.defining.subscribed(id)


def _is_to_start(seen: dict[str, Any]) -> bool:
    """Its first turn has not been tried yet."""
    if seen["turns"] or seen["failure"] or seen["stuck"] or seen["running"] or seen["status"] != "running":
        return False
    return seen["first_waiting"] is not None


async def borrow_type(client: "GridClient", name: str) -> None:
    """Without the application at hand, the nodes' word is enough: they know the type, and check parameters."""
    import trio

    from tenure.scheduler.jobtype import JobType
    from tenure.scheduler.nodes_seen import said_nodes

    nodes = await said_nodes(client.grid)
    with trio.move_on_after(NODE_PATIENCE_S):  # `tenure dev` may be starting it anew
        while not nodes:
            await trio.sleep(0.1)
            nodes = await said_nodes(client.grid)
    if not nodes:
        raise Unreachable("No node is running that could say which job types there are: start one (`tenure node APP`).")
    versions = [node.types[name] for node in nodes if name in node.types]
    if not versions:
        known = ", ".join(sorted({known for node in nodes for known in node.types})) or "none"
        raise Usage(f"No node knows job type {name!r} (known: {known}); register it in the nodes' application.")
    client.registry.add(JobType(name, _by_name_only, version=max(versions)))


def _by_name_only(ctx: Any, message: Any) -> None:
    raise Failed("a command line runs no jobs")


def _done(connection: Connection, result: dict[str, Any], sentence: str) -> None:
    if connection.json:
        print_json(result)
    else:
        say(sentence)


def _run(work: Any) -> Any:
    import trio

    return trio.run(work)
