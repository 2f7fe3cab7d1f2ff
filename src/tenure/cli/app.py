"""All commands, by name. Their modules are imported only when they are called, so that `--help` is quick."""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import cyclopts

from tenure.about import tenure_version
from tenure.cli.ends import Exit, explain
from tenure.cli.giving_up import HEED_THEMSELVES, giving_up
from tenure.cli.streams import flushed, let_go, stand_in

__all__ = ["build_app", "main"]

RUN, JOB, JOBS, LOOK, OPERATE, SPARK, PROVE = (
    cyclopts.Group.create_ordered(name)
    for name in (
        "Run",
        "One job",
        "Many jobs",
        "Look, and act on what is found",
        "Operate",
        "Pipelines",
        "Proofs, for anyone",
    )
)

COMMANDS: list[tuple[str, str, cyclopts.Group, str]] = [
    ("demo", "demo:demo", RUN, "See it: a cluster under load, its nodes and members killed, and the ledger."),
    ("dev", "dev:dev", RUN, "Develop: a member and a node that starts again when the application changes."),
    ("node", "node:node", RUN, "Run a node: jobs of an application, next to their data."),
    ("member", "member:member", RUN, "Run a member: a Hazelcast JVM that holds data."),
    ("doctor", "doctor:doctor", RUN, "Check a cluster: a verdict for each thing that the promises rest on."),
    ("schedule", "one:schedule", JOB, "Make a job. The same job again is fine."),
    ("unschedule", "many:unschedule", JOBS, "Remove jobs."),
    ("publish", "publish:publish", JOB, "Send messages: one, or many from standard input."),
    ("ask", "one:ask", JOB, "Send a message and print what the job's handler returns, once that is committed."),
    ("state", "one:state", JOB, "Print a job's committed state."),
    ("describe", "one:describe", JOB, "Print all that is known of a job: state, timer, failure, what waits."),
    ("jobs", "many:jobs", JOBS, "List jobs."),
    ("pause", "many:pause", JOBS, "Let jobs take no more turns; messages wait."),
    ("resume", "many:resume", JOBS, "Let paused and failed jobs go on."),
    ("cancel", "many:cancel", JOBS, "End running turns and activities, and pause their jobs."),
    ("retry", "many:retry", JOBS, "Let failed jobs try again what they failed on."),
    ("purge", "many:purge", JOBS, "Drop what waits for jobs."),
    ("dead-letters", "letters:app", LOOK, "Messages that no job could take: list, replay, discard."),
    ("topics", "look:topics", LOOK, "Topics, and how many jobs subscribe to each."),
    ("nodes", "look:nodes", LOOK, "Nodes, and what they own."),
    ("partitions", "look:partitions", LOOK, "Partitions: their owner, epoch, jobs, and what waits."),
    ("wait", "phases:wait", OPERATE, "Wait until an application is quiet: nothing waits, runs, or is on its way."),
    ("undeploy", "phases:undeploy", OPERATE, "Remove the jobs of an application that has finished."),
    ("drain", "phases:drain", OPERATE, "Let nodes hand over all that they have; they stay."),
    ("stop", "phases:stop", OPERATE, "End nodes on which nothing runs."),
    ("shutdown", "phases:shutdown", OPERATE, "Refuse inputs, finish what was accepted, and end all nodes."),
    ("workers", "phases:workers", OPERATE, "Activities of an application, and where they run."),
    ("upgrade", "upgrade:app", OPERATE, "Replace nodes by newer ones, some at a time, without stopping."),
    ("snapshot", "snapshots:snapshot", OPERATE, "Take a snapshot of all jobs, or one every so often."),
    ("snapshots", "snapshots:app", OPERATE, "Snapshots that were taken: list, verify, export."),
    ("restore", "snapshots:restore", OPERATE, "Restore a snapshot, into a cluster of any size."),
    ("repair", "repair:repair", OPERATE, "Mend a cluster's bookkeeping, where something has damaged it."),
    ("scale", "scale:app", OPERATE, "How large the cluster is and how busy; add nodes, remove nodes."),
    ("spark", "spark:app", SPARK, "Data pipelines on Spark: run them."),
    ("chaos", "demo:chaos", PROVE, "Kill, freeze and replace nodes and members of a real cluster under load."),
    ("simulate", "proofs:simulate", PROVE, "Run seeded simulations with faults, and check the promises."),
    ("bench", "proofs:bench", PROVE, "Measure throughput, latency and pauses; every run verifies its sums."),
]


def build_app() -> cyclopts.App:
    """The application; `--install-completion` sets the shell up."""
    app = cyclopts.App(
        name="tenure",
        help="Durable, keyed, stateful jobs on a Hazelcast grid.",
        version=tenure_version,
        help_format="plaintext",
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for name, where, group, help in COMMANDS:
        app.command(f"tenure.cli.{where}", name=name, group=group, help=help)
    app.register_install_completion_command(add_to_startup=False)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 usage, 3 unreachable."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in tokens
    stand_in()
    try:
        with nullcontext() if tokens[:1] and tokens[0] in HEED_THEMSELVES else _quick_and_giving_up():
            result = _run(tokens)
        flushed()
    except BaseException as error:  # whatever it is, it is told in a sentence; `--debug` shows the rest
        if debug and not isinstance(error, SystemExit):
            raise
        return explain(error, as_json="--json" in tokens)
    finally:
        let_go()
    return result if isinstance(result, int) else Exit.DONE


COLLECT_AFTER = 100_000


@contextmanager
def _quick_and_giving_up() -> Iterator[None]:
    """A command that lists very many things keeps all of them to its end: looking for cycles among them finds none."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        with giving_up():
            yield
    finally:
        gc.set_threshold(*before)


def _run(tokens: list[str]) -> Any:
    if tokens[:1] in (["bench"], ["simulate"]):
        from tenure.cli import proofs

        return proofs.run(tokens[0], tokens[1:])  # these read their own arguments, `--help` too
    app = build_app()
    if not {"--help", "-h"}.isdisjoint(tokens):
        _let_docstrings_speak(app, tokens[0])
    return app(tokens)


def _let_docstrings_speak(app: cyclopts.App, name: str) -> None:
    """A command's own help says more than its line in the list of all."""
    if name in {known for known, where, *_ in COMMANDS if not where.endswith(":app")}:
        app[name].help = None
