"""What becomes of an activity. Pure: a record and a report (or a wish, or a loss) in; a record, answer, event out.

An attempt does nothing before it is *admitted*: its process asks, and the first that asks is the one. So of all the
processes that crashes and zombies may ever launch for an attempt, one works. Reports of others, and of attempts
that were given up, are answered `fenced`.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from tenure.scheduler.activities_asked import as_json, checked_policy, stored
from tenure.scheduler.activities_bounds import (
    DETAILS_BYTES_MAX,
    NOTES_BYTES_MAX,
    TOLD_BYTES_MAX,
    details_with,
    progress_of,
    sound,
)
from tenure.scheduler.activities_port import Outcome, Run
from tenure.scheduler.activities_wire import Activity, ActivityEvent, ActivityPolicy, ActivityStatus, Report
from tenure.scheduler.errors import Mistake, TooLarge
from tenure.scheduler.texts import ERROR_CHARS_MAX, storable
from tenure.scheduler.wire import UNSTORABLE

__all__ = ["Change", "Verdict", "apply", "begin", "cancel", "hear", "lose", "restored", "run_of"]

ENDED_KEPT_MAX = 8
"""Ended activities that a job's record remembers, for people to see."""
UNENDED_MAX = 1000
NAME_CHARS_MAX = 200
RESULT_KEPT_BYTES_MAX = 4096

Verdict = Literal["go", "cancel", "fenced", "too_large"]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Change(NamedTuple):
    """The activity as it is now, and what its job is to be told."""

    activity: Activity
    event: ActivityEvent | None = None


# -- asked for by a turn --------------------------------------------------------------------------


def begin(
    job: str,
    generation: int,
    turn: str,
    name: str,
    kind: str,
    work: Any,
    policy: ActivityPolicy,
    *,
    cluster: str,
    now_ms: int,
) -> Activity:
    """A new activity, wanted. Its id and tags are the same whenever this turn is tried, and never another's."""
    if not _is_name(name) or not _is_name(kind):
        raise Mistake(
            f"an activity has a name and a kind of 1 to {NAME_CHARS_MAX} characters: {name!r:.200}, {kind!r:.200}"
        )
    id = hashlib.blake2b(f"{turn}\0{name}".encode(), digest_size=8).hexdigest()
    run = _run_name(job, generation, id, cluster)
    return stored(Activity(name, id, kind, as_json(work), run, checked_policy(policy), now_ms, due_ms=now_ms))


def _is_name(said: Any) -> bool:
    return isinstance(said, str) and 0 < len(said) <= NAME_CHARS_MAX and storable(said) == said


def _run_name(job: str, generation: int, id: str, cluster: str) -> str:
    whose = hashlib.blake2b(f"{cluster}\0{job}\0{generation}\0{id}".encode(), digest_size=12).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', job)[:40]}-{whose}"


Wish = tuple[Literal["start"], Activity] | tuple[Literal["cancel"], str]


def apply(
    activities: tuple[Activity, ...], wishes: Iterable[Wish], now_ms: int
) -> tuple[tuple[Activity, ...], list[ActivityEvent]]:
    """What a turn asked for, in order. Raises `Mistake` for a name that is taken by one that has not ended."""
    table = {activity.name: activity for activity in activities}
    events = []
    for wish in wishes:
        if wish[0] == "start":
            there = table.pop(wish[1].name, None)
            if there is not None and not there.has_ended:
                raise Mistake(
                    f"activity {there.name!r} is {there.status}: cancel it and wait for its end, or take another name"
                )
            table[wish[1].name] = wish[1]
        elif (found := table.get(wish[1])) is not None:
            table[wish[1]], event = cancel(found, now_ms)
            if event is not None:
                events.append(event)
    return _kept(table.values()), events


def _kept(activities: Iterable[Activity]) -> tuple[Activity, ...]:
    all = tuple(activities)
    if sum(not activity.has_ended for activity in all) > UNENDED_MAX:
        raise TooLarge(f"a job can't have more than {UNENDED_MAX} activities at the same time")
    surplus = sum(activity.has_ended for activity in all) - ENDED_KEPT_MAX
    if surplus <= 0:
        return all
    oldest = sorted((a for a in all if a.has_ended), key=lambda a: a.ended_ms)[:surplus]
    return tuple(activity for activity in all if activity not in oldest)


def cancel(activity: Activity, now_ms: int) -> Change:
    """It is not wanted any more. One that was not admitted will never be: it ends here."""
    if activity.status == ActivityStatus.WANTED:
        return _end(activity, Outcome(status="cancelled"), now_ms)
    if activity.status == ActivityStatus.RUNNING:
        due_ms = now_ms + round(activity.policy.cancel_deadline_s * 1000)
        return Change(replace(activity, status=ActivityStatus.CANCELLING, due_ms=due_ms))
    return Change(activity)


# -- what processes say ---------------------------------------------------------------------------


def hear(
    activity: Activity | None, report: Report, now_ms: int, room_bytes: int = TOLD_BYTES_MAX
) -> tuple[Verdict, Change | None]:
    """The answer to a report, and what it changes (None: nothing). `room_bytes`: so much may it keep of details and
    notes, beside the other activities of its job."""
    if activity is None or report.tag != activity.tag:
        return "fenced", None
    if report.what == "started" and activity.status == ActivityStatus.WANTED:
        return "go", Change(
            replace(
                activity,
                status=ActivityStatus.RUNNING,
                place=report.place,
                pid=report.pid,
                nonce=report.nonce,
                started_ms=now_ms,
                said=report.n,
            )
        )
    if report.nonce != activity.nonce or not activity.nonce:
        return "fenced", None
    if activity.has_ended:
        return ("go", None) if report.what == "ended" else ("fenced", None)
    verdict: Verdict = "cancel" if activity.status == ActivityStatus.CANCELLING else "go"
    if report.n <= activity.said:
        return verdict, None
    return _hear_news(activity, report, now_ms, verdict, room_bytes)


def _hear_news(
    activity: Activity, report: Report, now_ms: int, verdict: Verdict, room_bytes: int
) -> tuple[Verdict, Change | None]:
    if not (report.progress or report.details or report.notes or report.outcome):
        return verdict, None  # a heartbeat: nothing to be kept
    notes = _noted(activity, report.notes, room_bytes)
    if notes is None:
        if report.outcome is None:
            return "too_large", None
        notes = activity.notes  # that it has ended counts all the same
    heard = replace(
        activity,
        said=report.n,
        progress=progress_of(report.progress) or activity.progress,
        details=_merged(activity.details, report.details, room_bytes - len(notes)),
        notes=notes,
    )
    if report.outcome is not None:
        return verdict, _ended(heard, sound(report.outcome), now_ms)
    tells = activity.policy.tells_progress and (report.progress or report.details)
    return verdict, Change(heard, _event(heard, "progress") if tells else None)


def _noted(activity: Activity, news: dict[str, Any], room_bytes: int) -> bytes | None:
    """Its notes with these; None if they are more than are kept, or nothing that can be."""
    if not news:
        return activity.notes
    try:
        notes = _encode((_decode(activity.notes) if activity.notes else {}) | news)
    except UNSTORABLE:
        return None
    is_too_much = len(notes) > min(NOTES_BYTES_MAX, room_bytes - len(activity.details))
    return None if is_too_much and len(notes) > len(activity.notes) else notes


def _merged(known: bytes, news: dict[str, Any], room_bytes: int) -> bytes:
    if not news:
        return known
    return _encode(details_with(_decode(known) if known else {}, news, min(DETAILS_BYTES_MAX, room_bytes)))


def _ended(activity: Activity, outcome: Outcome, now_ms: int) -> Change:
    if outcome.status != "failed":
        return _end(activity, outcome, now_ms)
    if activity.status == ActivityStatus.CANCELLING:
        return _end(activity, replace(outcome, status="cancelled"), now_ms)
    return lose(activity, outcome, now_ms)


# -- attempts that failed -------------------------------------------------------------------------


def lose(activity: Activity, outcome: Outcome, now_ms: int) -> Change:
    """An attempt has failed, or is given up: the next one, or the end. From here on, the old one is fenced."""
    if activity.status == ActivityStatus.CANCELLING:
        return _end(activity, replace(outcome, status="cancelled"), now_ms)
    forgiven = activity.attempt - 1 if _was_healthy(activity, now_ms) else activity.forgiven
    failures = activity.attempt - forgiven
    if outcome.final or failures >= activity.policy.attempts_max:
        return _end(activity, outcome, now_ms)
    due_ms = now_ms + max(1, round(activity.policy.delay_s(failures) * 1000))
    again = replace(_again(activity, outcome.error, due_ms), forgiven=forgiven)
    tells = activity.policy.tells_progress
    return Change(again, _event(activity, "retrying", outcome) if tells else None)


def _was_healthy(activity: Activity, now_ms: int) -> bool:
    healthy_after_s = activity.policy.healthy_after_s
    if healthy_after_s is None or not activity.started_ms:
        return False
    return now_ms - activity.started_ms >= healthy_after_s * 1000


def _end(activity: Activity, outcome: Outcome, now_ms: int) -> Change:
    result = _encode(outcome.result) if outcome.result is not None else b""
    ended = replace(
        activity,
        status=ActivityStatus.ENDED,
        work=b"",
        notes=b"",
        due_ms=0,
        outcome=outcome.status,
        error=storable(outcome.error[:ERROR_CHARS_MAX]),
        result=result if len(result) <= RESULT_KEPT_BYTES_MAX else b"",
        ended_ms=now_ms,
    )
    return Change(ended, _event(ended, outcome.status, outcome))


def restored(job: str, generation: int, activity: Activity, *, cluster: str, now_ms: int) -> Activity:
    """The activity in a cluster that was restored from a snapshot: what runs belongs to the cluster that was, and will
    find its job gone. So this is the next attempt, under tags that no run has had."""
    if activity.has_ended:
        return activity
    if activity.status == ActivityStatus.CANCELLING:
        return _end(activity, Outcome(status="cancelled"), now_ms).activity
    run = _run_name(job, generation, activity.id, cluster)
    return replace(_again(activity, activity.error, now_ms), run=run)


def _again(activity: Activity, error: str, due_ms: int) -> Activity:
    return replace(
        activity,
        attempt=activity.attempt + 1,
        status=ActivityStatus.WANTED,
        due_ms=due_ms,
        place="",
        pid=0,
        nonce="",
        started_ms=0,
        said=0,
        progress=None,
        details=b"",
        error=storable(error[:ERROR_CHARS_MAX]),
    )


def _event(activity: Activity, status: Any, outcome: Outcome | None = None) -> ActivityEvent:
    outcome = outcome or Outcome(status="failed")
    return ActivityEvent(
        name=activity.name,
        id=activity.id,
        kind=activity.kind,
        status=status,
        attempt=activity.attempt,
        result=outcome.result,
        error=outcome.error,
        traceback=outcome.traceback,
        progress=activity.progress,
        details=_decode(activity.details) if activity.details else {},
    )


# -- for launchers --------------------------------------------------------------------------------


def run_of(job: str, generation: int, activity: Activity) -> Run:
    """The current attempt, as a launcher gets it."""
    policy = activity.policy
    return Run(
        tag=activity.tag,
        job=job,
        generation=generation,
        activity=activity.name,
        id=activity.id,
        attempt=activity.attempt,
        kind=activity.kind,
        work=json.loads(activity.work),
        notes=_decode(activity.notes) if activity.notes else {},
        heartbeat_s=policy.heartbeat_s,
        cancel_deadline_s=policy.cancel_deadline_s,
        orphan_after_s=policy.orphan_after_s,
        timeout_s=policy.timeout_s,
        stall_after_s=policy.stall_after_s,
    )
