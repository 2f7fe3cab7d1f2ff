"""What the doctor asks of partitions and their jobs: who has failed, what nobody could take, do snapshots come."""

from collections.abc import Sequence
from typing import Any

from tenure.members import Standard, Verdict
from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import TenureError
from tenure.scheduler.snapshots.schedule import JOB_TYPE

__all__ = ["judge_bounds", "judge_jobs", "judge_letters", "judge_partitions", "judge_snapshots", "some"]

GOOD, WARNING, BAD = Standard.GOOD, Standard.WARNING, Standard.BAD
LATE_TIMES = 2
"""So many times the time between two snapshots is late."""

NOT_OPEN = {
    "lost": ("are lost", "Restore a snapshot."),
    "parked": (
        "are parked: no node that lives reads what is in them",
        "Start a node of the version that wrote it; `tenure partitions`, and the nodes' logs, say more.",
    ),
    "silent": ("do not answer", "Look at the nodes' logs."),
}
"""state -> what is so, and what to do; the worst first"""


def judge_partitions(rows: list[dict[str, Any]]) -> Verdict:
    """Has each an owner that answers?"""
    found = {state: [row["partition"] for row in rows if row["state"] == state] for state in NOT_OPEN}
    if not any(found.values()):
        return Verdict("owners", GOOD, f"all {len(rows)} partitions are open")
    if stopped := [row for row in rows if "error" in row]:
        those = [row["partition"] for row in stopped]
        why = next((row["error"] for row in stopped if row["error"]), "its node's log says why")
        finding = f"partitions {some(those)} are parked for an error that nobody expected, and tried again: {why}"
        return Verdict("owners", BAD, finding, "Its log has the traceback: report it, or start a mended version.")
    shown = "; ".join(f"partitions {some(those)} {NOT_OPEN[state][0]}" for state, those in found.items() if those)
    worst = next(state for state, those in found.items() if those)
    return Verdict("owners", BAD, shown, NOT_OPEN[worst][1])


def judge_jobs(jobs: list[dict[str, Any]]) -> Verdict:
    """Those that can't go on by themselves, and those of which it is not known whether they will."""
    failed = [str(job["id"]) for job in jobs if job["status"] == "failed"]
    stuck = [str(job["id"]) for job in jobs if job["stuck"]]
    retrying = [str(job["id"]) for job in jobs if job["error"] and job["status"] != "failed"]
    if not failed and not stuck and not retrying:
        return Verdict("jobs", GOOD, f"{len(jobs)}, none has failed")
    told = [
        (failed, "has failed", "have failed", "`tenure describe`, and `retry`"),
        (stuck, "is stuck", "are stuck", "`tenure describe` for why"),
        (retrying, "is tried again after failures", "are tried again after failures", "`tenure jobs state=retrying`"),
    ]
    shown = "; ".join(
        f"{len(those)} {one if len(those) == 1 else all}: {some(those)}" for those, one, all, _ in told if those
    )
    return Verdict("jobs", WARNING, shown, f"See {next(step for those, _, _, step in told if those)}.")


def judge_letters(rows: list[dict[str, Any]]) -> Verdict:
    """Dead letters that are kept, and those that were not; as far as partitions answer."""
    letters = sum(row.get("dead_letters", 0) for row in rows)
    dropped, expired = (sum(row.get(f"dead_letters_{what}", 0) for row in rows) for what in ("dropped", "expired"))
    lost = [f"{count} {how}" for count, how in ((dropped, "were dropped"), (expired, "have expired")) if count]
    if full := [row["partition"] for row in rows if row.get("dead_letters_full")]:
        what = f"{letters}; partitions {some(full)} have too many: who would send more waits"
        return Verdict("dead letters", BAD, "; ".join([what, *lost]), "Replay or discard them: `tenure dead-letters`.")
    if letters or dropped:
        return Verdict("dead letters", WARNING, "; ".join([f"{letters}", *lost]), "See `tenure dead-letters`.")
    return Verdict("dead letters", GOOD, "none")


def judge_bounds(rows: list[dict[str, Any]]) -> list[Verdict]:
    """What will soon make somebody wait; nothing is said where nothing is near."""
    found = [
        f"partition {row['partition']}: {bound['what']}: {bound['held']:,} of {bound['limit']:,} ({bound['setting']})"
        for row in rows
        for bound in row.get("near", ())
    ]
    if not found:
        return []
    next_step = (
        "Who sends more waits at the limit: see what holds it up, or set it higher. All: `tenure partitions --json`."
    )
    return [Verdict("bounds", WARNING, f"{len(found)} are near: {some(found, 3)}", next_step)]


async def judge_snapshots(client: GridClient, jobs: list[dict[str, Any]], *, now_ms: int, timeout_s: float) -> Verdict:
    """Those that are scheduled: do they run, and do they come?"""
    scheduled = [job for job in jobs if job["type"] == JOB_TYPE.name]
    if not scheduled:
        return Verdict("snapshots", GOOD, "none are scheduled here")
    problems = []
    for job in scheduled:
        try:
            state = (await client.directory.describe(job["id"], deadline_s=timeout_s))["state"]
        except TenureError as error:
            problems.append((WARNING, f"{job['id']}: {error}", "See `tenure doctor` again."))
            continue
        if (problem := _problem(job, state, now_ms)) is not None:
            problems.append(problem)
    if not problems:
        return Verdict("snapshots", GOOD, f"{len(scheduled)} scheduled, and they come")
    worst = next((problem for problem in problems if problem[0] is BAD), problems[0])
    return Verdict("snapshots", worst[0], "; ".join(finding for _, finding, _ in problems), worst[2])


def _problem(job: dict[str, Any], state: dict[str, Any], now_ms: int) -> tuple[Standard, str, str] | None:
    """A verdict of what `ScheduledSnapshots` says of itself; None: it is well."""
    place, error = state["url"], state["error"]
    if state["stopped"]:
        step = f"`tenure snapshot {place} --every …` again, at a place of its own."
        return BAD, f"those to {place} have stopped: {state['stopped']}", step
    if job["status"] != "running" or job["stuck"]:
        why = job["stuck"] or job["error"]
        finding = f"those to {place} do not run: the job is {'stuck' if job['stuck'] else job['status']}"
        return (
            BAD,
            f"{finding}{f' ({why})' if why else ''}",
            f"`tenure describe '{job['id']}'`, then `resume` or `retry`.",
        )
    since_ms = state.get("last_ms") or state.get("since_ms") or now_ms
    late_ms = 1000 * (LATE_TIMES * state["every_s"] + state["within_s"])
    last = (
        f"the last was taken {round((now_ms - since_ms) / 60_000)} min ago" if state["taken"] else "none was taken yet"
    )
    step = "Mend what the error names; the nodes' logs have it, too."
    if now_ms - since_ms > late_ms:
        return BAD, f"those to {place} are overdue: {last}{f' ({error})' if error else ''}", step
    if error:
        return WARNING, f"the last try to {place} failed: {error}", step
    return None


def some(things: Sequence[object], shown: int = 5) -> str:
    """The first of them by name."""
    text = ", ".join(map(str, things[:shown]))
    return text if len(things) <= shown else f"{text} and {len(things) - shown} more"
