"""`tenure node`: run jobs until told to stop."""

import json
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tenure.cli.ends import Exit, Usage
from tenure.cli.options import USUAL_OUTPUT, Output, Seconds, SecondsOrZero
from tenure.cli.show import announce

if TYPE_CHECKING:
    from tenure.nodes.process import Ready
    from tenure.scheduler.settings import NodeSettings

__all__ = ["node"]


def node(
    app: str,
    /,
    *,
    cluster: Annotated[str | None, Parameter(name=["--cluster", "-c"], env_var="TENURE_CLUSTER")] = None,
    name: str = "",
    prefer_network: str | None = None,
    drain_deadline: SecondsOrZero = 30.0,
    turn_deadline: SecondsOrZero | None = None,
    turns_at_once: int | None = None,
    threads: int | None = None,
    give_up_after: Seconds = 60.0,
    connect_timeout: Seconds = 30.0,
    allow_unsafe_members: Annotated[bool, Parameter(negative="")] = False,
    allow_pickled_jobs: Annotated[bool, Parameter(negative="")] = False,
    begin_anew: Annotated[bool, Parameter(negative="")] = False,
    state: Annotated[Path | None, Parameter(env_var="TENURE_NODE_STATE")] = None,
    events: bool = True,
    health_file: Path | None = None,
    set: Annotated[list[str] | None, Parameter(negative="")] = None,
    log_level: str = "info",
    output: Output = USUAL_OUTPUT,
) -> int:
    """Run a node: jobs of an application, next to their data.

    It joins the cluster, takes over its share of partitions and runs their jobs until SIGTERM or SIGINT;
    then it hands over and ends (a second signal: it quits at once). Without a cluster it starts a member
    of its own, which ends with it, and all data too.

    Parameters
    ----------
    app
        A Python file or module that registers job types.
    cluster
        NAME@host:port,host:port. Without: an embedded member.
    name
        A name to be seen under in `tenure nodes`.
    prefer_network
        A network (CIDR): be paired with a member that has an address in it.
    drain_deadline
        Seconds that handing over may take.
    turn_deadline
        Seconds of these that running turns get to finish; later they are cancelled, and run again elsewhere.
    turns_at_once
        Async and blocking turns that may run at the same time on this node; the others wait.
    threads
        Blocking turns that may be at work at the same time on this node; the others wait.
    give_up_after
        Seconds without an answer from any member until the node ends.
    connect_timeout
        Seconds to wait for the first connection.
    allow_unsafe_members
        Run on members that lack the settings that the promises rest on.
    allow_pickled_jobs
        Run callables that clients sent as pickles: whoever may write to the grid may then run code here.
    begin_anew
        If the cluster has lost everything, go on with an empty one; if another one has taken its place, with that.
    state
        A folder that outlives the node: it notes down there which cluster this is, and forms no other one when all
        members have come back empty. By default in the user's state folder.
    events
        Listen to events. Without, everything is found by sweeps: slower, for tests.
    health_file
        A file to touch every two seconds, as long as the node is heard: for probes of containers.
    set
        NAME=VALUE of another setting of a node; docs/settings.md lists them.
    log_level
        debug, info, warning or error.
    """
    import trio

    from tenure.members import rich_progress
    from tenure.nodes import load
    from tenure.nodes.logs import set_up_logs
    from tenure.nodes.process import NodeOptions, run_node, watched

    if log_level not in ("debug", "info", "warning", "error"):
        raise Usage(f"--log-level is debug, info, warning or error, not {log_level!r}.")
    changed: dict[str, object] = {"allow_pickled_jobs": True} if allow_pickled_jobs else {}
    if turn_deadline is not None:
        changed["drain_deadline_s"] = turn_deadline
    if turns_at_once is not None:
        if turns_at_once < 1:
            raise Usage(f"--turns-at-once is {turns_at_once}: a node that runs jobs runs at least one turn.")
        changed["turns_at_once_max"] = turns_at_once
    if threads is not None:
        if threads < 1:
            raise Usage(f"--threads is {threads}: a node has at least one for blocking turns.")
        changed["blocking_threads_max"] = threads
    options = NodeOptions(
        cluster=cluster or None,
        name=name,
        prefer_network=_network(prefer_network),
        allow_unsafe_members=allow_unsafe_members,
        begin_anew=begin_anew,
        state=state,
        connect_timeout_s=connect_timeout,
        gone_after_s=give_up_after,
        drain_deadline_s=drain_deadline,
        listen=events,
        health_file=health_file,
        settings=node_settings(set or [], changed),
    )
    set_up_logs(json=output.json, level=log_level)
    with closing(watched(options)) as beside:
        application = load(app)
        progress = rich_progress() if sys.stderr.isatty() else None
        run = partial(run_node, options, application, partial(_announce, as_json=output.json))
        trio.run(partial(run, progress=progress, beside=beside))
    return Exit.DONE


def _announce(ready: "Ready", *, as_json: bool) -> None:
    if as_json:
        line = json.dumps({"event": "ready", **ready.__dict__})
    else:
        line = f"Node {ready.node} is ready: {ready.partitions} partitions of {ready.cluster} (pid {ready.pid})."
    announce(line)


def _network(text: str | None) -> str | None:
    import ipaddress

    try:
        return str(ipaddress.ip_network(text, strict=False)) if text else None
    except ValueError as error:
        raise Usage(f"--prefer-network: {error}; write it like 10.1.0.0/16.") from error


def node_settings(pairs: list[str], changed: dict[str, object]) -> "NodeSettings":
    """Settings from NAME=VALUE. Raises `Usage` where there is none of this name, or it takes another kind of value."""
    import msgspec

    from tenure.scheduler.settings import NodeSettings

    values = dict(changed)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in NodeSettings.__struct_fields__:
            raise Usage(
                f"--set {pair}: write NAME=VALUE, with NAME one of {', '.join(NodeSettings.__struct_fields__)}."
            )
        values[name] = value
    try:
        return msgspec.convert(values, NodeSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Usage(f"--set: {error}.") from error
