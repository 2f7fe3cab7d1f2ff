"""Questions to a partition about its jobs, and what is asked of them: answered by the owner, after a commit."""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from tenure.scheduler.activities_wire import Activity
from tenure.scheduler.budget import PAGE_BYTES_MAX, envelope_bytes
from tenure.scheduler.errors import WrongType
from tenure.scheduler.journal import TenureOver
from tenure.scheduler.live import Live
from tenure.scheduler.near import near
from tenure.scheduler.sightings import Question, application_of
from tenure.scheduler.wire import Answer, DeadLetter, Envelope, JobRecord, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["body_of", "run", "shown"]

PAGE_MAX = 1000
REPEATED_S_MAX = 3600.0
"""Clients repeat a command until they are answered. One that counts once is remembered for so long."""
AILING_ATTEMPTS = 5
"""What has failed so often in a row is not just a hiccup."""
SHOWN_BYTES_MAX = 2**18
"""Of a state, a message or an activity's words, no more is shown by the way: who wants it asks for it."""
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode
LEFT = "the rest"
"""What a command leaves that goes on with whatever there still is."""
Arguments = dict[str, Any]


def body_of(envelope: Envelope) -> Any:
    """The decoded body, or None if it is none."""
    try:
        return _decode(envelope.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def run(tenure: "Tenure", envelope: Envelope, after: str = "", count: int = 0) -> tuple[str, int] | None:
    """Do what a command asks, and answer it. What is too much for one record is left half done: it goes on behind
    `after` next time, `count` being done."""
    arguments = body_of(envelope)
    operation = OPERATIONS.get(arguments.get("op", "")) if isinstance(arguments, dict) else None
    if operation is None:
        tenure.turns.draft.answer_error(envelope, "AskFailed", f"no such command: {arguments!r:.200}")
        return None
    if operation in (_jobs, _jobs_of, _status) and tenure.definitions.postpone(envelope):
        return None
    once = f"command {arguments['once']!s:.100}" if arguments.get("once") else ""
    if once and (known := tenure.turns.remembered("", once)) is not None and known[1] is not None:
        tenure.turns.draft.answer(envelope, known[1])
        return None
    try:
        if operation in (_exhume, _purge, _end):
            if (left := operation(tenure, envelope, arguments, count)) is not None:
                tenure.want_commit()
                return left  # type: ignore[no-any-return]
        else:
            operation(tenure, envelope, arguments)
        if once:
            _remember(tenure, envelope, once)
    except TenureOver:
        raise
    except Exception as error:  # noqa: BLE001  # whatever somebody asks for, the partition goes on
        tenure.turns.draft.answer_error(envelope, "AskFailed", f"wrong arguments: {arguments!r:.200}: {error!r}")
    return None


def _remember(tenure: "Tenure", envelope: Envelope, once: str) -> None:
    """What was answered just now is the answer to all repetitions of this command."""
    answers = tenure.turns.draft.answers
    if envelope.reply and answers and answers[-1][1].n == envelope.reply:
        _, answer = answers[-1]
        until_ms = tenure.host.now_ms() + round(REPEATED_S_MAX * 1000)
        tenure.turns.draft.remembered["", once] = (until_ms, Answer(0, answer.ok, answer.body))


def _existing(tenure: "Tenure", envelope: Envelope) -> Live | None:
    live = tenure.lives.of(envelope.to)
    if live.exists():
        return live
    tenure.lives.ready(live)  # to be forgotten
    tenure.turns.draft.answer_error(envelope, "UnknownJob", f"job {envelope.to!r}: there is no job of this id")
    return None


def _check(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """Would a job of this type and these parameters be one? False: its type is not known here."""
    found = tenure.host.known_type(str(arguments["type"]))
    try:
        if found is not None:
            found.initial(arguments["parameters"])
    except WrongType as error:
        tenure.turns.draft.answer_error(envelope, "WrongType", str(error))
    else:
        tenure.turns.draft.answer_value(envelope, found is not None)


def _reconcile(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    tenure.definitions.answer_when(envelope, int(arguments["revision"]), stopping=bool(arguments.get("stopping")))


def _started(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """What does it subscribe to, when it has started?"""
    tenure.start(_when_started, tenure, envelope)


async def _when_started(tenure: "Tenure", envelope: Envelope) -> None:
    await tenure.definitions.fetch(envelope.to)
    tenure.subscribing.answer_when_started(envelope)


def _subscribed(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    tenure.subscribing.answer_when_subscribed(envelope, str(arguments["job"]))


def _retry(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """Try a failed job's event again; with `skip`, make a dead letter of it and go on with the next. `event` names the
    turn that is meant: where another one has failed by now, nothing is done; nor where it is just being tried again.
    (Older clients name none.)

    A job that is paused stays so, and tries when it is resumed. One that is to go does, and its stop is not skipped.
    """
    live = _existing(tenure, envelope)
    if live is None:
        return
    failed = live.status == Status.FAILED or live.failure is not None
    meant = arguments.get("event")
    if failed and meant and live.failure is not None and live.failure.event != meant:
        tenure.turns.draft.answer_value(envelope, False)
        return
    if failed and arguments.get("skip") and live.running:
        tenure.turns.draft.answer_value(envelope, False)  # it is being tried again, and may succeed
        return
    if failed and arguments.get("skip"):
        _skip(tenure, live)
    if live.status == Status.FAILED:
        tenure.definitions.resume(live)
    elif failed:
        tenure.definitions.forgive(live)
    tenure.turns.draft.answer_value(envelope, failed)


def _skip(tenure: "Tenure", live: Live) -> None:
    # It may have been resumed elsewhere since it failed: that comes before what it failed on, and is not meant.
    resumed = live.queue[0] if len(live.queue) > 1 and live.queue[0].kind == Kind.RESUMED else None
    if resumed is not None and live.failure is not None and "/resumed@" in live.failure.event:
        resumed = None
    first = live.queue[0 if resumed is None else 1] if live.queue else None
    if first is None or first.kind == Kind.STOP:
        return
    if resumed is not None:
        tenure.turns.done(live, resumed)
    tenure.turns.done(live, first)
    tenure.dead_letters.keep(first, "Skipped", live.failure.error if live.failure else "skipped")
    if resumed is not None:
        tenure.lives.put_first(live, resumed)


def _cancel(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """End the running turn, if there is one, whose event stays first in the queue; and the job's activities. Of a job
    that is being removed, it becomes a dead letter, and the job goes on to its end."""
    live = _existing(tenure, envelope)
    if live is None:
        return
    running = tenure.purging.end_turn(live)
    ended = tenure.activity_changes.cancel_all(live)
    tenure.turns.draft.answer_value(envelope, running or ended > 0)


def _purge(tenure: "Tenure", envelope: Envelope, arguments: Arguments, count: int) -> tuple[str, int] | None:
    """Drop the messages that wait for a job, but for the turn that runs. Tells how many there were."""
    live = _existing(tenure, envelope)
    if live is None:
        return None
    dropped, is_left = tenure.purging.purge(live, "Purged", f"what waited for job {live.id!r} was dropped")
    count += dropped
    if is_left:
        return LEFT, count
    tenure.turns.draft.answer_value(envelope, count)
    return None


def _end(tenure: "Tenure", envelope: Envelope, arguments: Arguments, count: int) -> tuple[str, int] | None:
    """A job that is being removed is to be gone. Tells how many messages were dropped."""
    live, is_left = tenure.lives.of(envelope.to), False
    if live.exists() and live.status == Status.STOPPING:
        dropped, is_left = tenure.purging.end(live)
        count += dropped
    tenure.lives.ready(live)
    if is_left:
        return LEFT, count
    tenure.turns.draft.answer_value(envelope, count)
    return None


def _room(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """A client holds back what is for these jobs (see `holding`): do they take messages again?"""
    ids = [str(id) for id in arguments["jobs"]][:PAGE_MAX]
    holding, client = tenure.holding, envelope.slot[:8]
    rows = [holding.room(id, client) for id in ids]
    tenure.turns.draft.answer_value(envelope, {"room": rows, "letters": {tenure.partition: holding.letters(client)}})


def _describe(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    live = _existing(tenure, envelope)
    if live is not None:
        tenure.turns.draft.answer_value(envelope, _description(tenure, live))


def _description(tenure: "Tenure", live: Live) -> Arguments:
    timer, failure = live.timer, live.failure
    return _summary(tenure, live.id, live.record()) | {
        "revision": live.revision,
        "turns": live.turns,
        "timer": None
        if timer is None or not timer.first_ms()
        else {"due_ms": timer.due_ms, "cron": timer.cron, "tz": timer.zone, "cron_due_ms": timer.cron_due_ms},
        "failure": None if failure is None else msgspec.structs.asdict(failure),
        "first_waiting": _first_waiting(live),
        "topics": list(live.topics),
        "progress": list(live.progress) if live.progress else None,
        "activities": [_activity(tenure, activity) for activity in live.activities],
        "state": _glance(live.state),
    }


def _activity(tenure: "Tenure", activity: Activity) -> Arguments:
    return {
        "name": activity.name,
        "id": activity.id,
        "kind": activity.kind,
        "status": activity.outcome or activity.status,
        "attempt": activity.attempt,
        "attempts_max": activity.policy.attempts_max,
        "tag": activity.tag,
        "place": activity.place,
        "pid": activity.pid,
        "at_ms": activity.at_ms,
        "started_ms": activity.started_ms,
        "heard_ms": tenure.supervisor.heard_ms(activity.id),
        "due_ms": activity.due_ms,
        "ended_ms": activity.ended_ms,
        "waits_for": tenure.supervisor.waits_for(activity.id),
        "progress": list(activity.progress) if activity.progress else None,
        "details": _glance(activity.details) if activity.details else {},
        "notes": _glance(activity.notes) if activity.notes else {},
        "result": _glance(activity.result) if activity.result else None,
        "error": activity.error,
    }


def _first_waiting(live: Live) -> Arguments | None:
    if not live.queue:
        return None
    first = live.queue[0]
    return {
        "kind": first.kind,
        "message": _glance(first.body),
        "id": first.id,
        "source": first.source,
        "attempts": first.attempts,
    }


def _glance(encoded: Any) -> Any:
    """The same, but for what is large: of that only how large it is."""
    return shown(encoded) if len(encoded) <= SHOWN_BYTES_MAX else f"({len(encoded)} bytes)"


def shown(encoded: Any) -> Any:
    """The value of stored bytes, or the bytes themselves if they are none."""
    try:
        return _decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(encoded)


def _summary(tenure: "Tenure", id: str, record: JobRecord) -> Arguments:
    live = tenure.lives.by_id.get(id)
    mail = tenure.state.mail.get(id)
    return {
        "id": id,
        "type": record.type,
        "version": record.version,
        "generation": record.generation,
        "application": application_of(tenure, record.type, record.application),
        "status": record.status,
        "stuck": live.stuck if live else "",
        "running": bool(live and live.running),
        "waiting": len(live.queue) if live else len(mail or ()),
        "due_ms": record.timer.first_ms() if record.timer else 0,
        "error": record.failure.error if record.failure else "",
        "node": tenure.host.node,
        "partition": tenure.partition,
    }


def _page(rows: Iterable[Arguments], limit: int = PAGE_MAX) -> tuple[list[Raw], bool]:
    """As many rows, encoded, as a page has room for; and whether there are more. There is always room for one."""
    page: list[Raw] = []
    size_bytes = 0
    for row in rows:
        if len(page) >= limit or size_bytes >= PAGE_BYTES_MAX:
            return page, True
        page.append(Raw(_encode(row)))
        size_bytes += len(page[-1])
    return page, False


def _jobs(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """A page of jobs in the order of their ids, after `after`."""
    after, limit = str(arguments.get("after", "")), min(PAGE_MAX, int(arguments.get("limit", PAGE_MAX)))
    ids = nsmallest(limit + 1, (id for id in _ids(tenure) if id > after))
    page, more = _page((_summary(tenure, id, _record(tenure, id)) for id in ids), limit)
    tenure.turns.draft.answer_value(envelope, {"jobs": page, "more": more})


def _ids(tenure: "Tenure") -> set[str]:
    """The jobs as they are with this draft, which the answer is committed with."""
    lives = tenure.lives.by_id.items()
    return tenure.state.jobs.keys() - {id for id, live in lives if not live.exists()} | {
        id for id, live in lives if live.exists()
    }


def _record(tenure: "Tenure", id: str) -> JobRecord:
    live = tenure.lives.by_id.get(id)
    return tenure.state.jobs[id] if live is None else live.record()


def _status(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    state = tenure.state
    tenure.turns.draft.answer_value(
        envelope,
        {
            "partition": tenure.partition,
            "node": tenure.host.node,
            "epoch": state.epoch,
            "slot": state.next_slot,
            "jobs": len(_ids(tenure)),
            "failed": sum(record.status == Status.FAILED for _, record in tenure.lives.records()),
            "stuck": _stuck(tenure),
            "retrying": _retrying(tenure),
            "waiting": sum(len(live.queue) for live in tenure.lives.by_id.values()),
            "dead_letters": len(state.dead),
            "dead_letters_bytes": tenure.dead_letters.size_bytes,
            "dead_letters_full": tenure.holding.letters_full,
            "near": [bound._asdict() for bound in near(tenure)],
            "dead_letters_dropped": state.letters_lost[0],
            "dead_letters_expired": state.letters_lost[1],
            "full": len(tenure.holding.full),
            "outbox": sum(len(slots) for slots in state.outbox.values()),
            "lanes": len(state.cursors),
        },
    )


def _retrying(tenure: "Tenure") -> int:
    """Jobs that have not failed yet, but whose first event has, again and again."""
    records = (record for _, record in tenure.lives.records() if record.status != Status.FAILED)
    return sum(record.failure is not None and record.failure.attempts >= AILING_ATTEMPTS for record in records)


def _stuck(tenure: "Tenure") -> int:
    """Jobs that can't run on this node, idle ones too."""
    known = {type.name: type.version for type in tenure.host.registry}
    idle = ((id, record) for id, record in tenure.state.jobs.items() if id not in tenure.lives.by_id)
    strange = sum(
        record.version > known.get(record.type, 0) and tenure.host.type_of(record)[0] is None for _, record in idle
    )
    return strange + sum(bool(live.stuck) for live in tenure.lives.by_id.values() if live.exists())


def _quiet(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    question = msgspec.convert({name: value for name, value in arguments.items() if name != "op"}, Question)
    tenure.sightings.ask(envelope, question)


def _jobs_of(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """The ids of an application's jobs, but for those that end already: a page in their order, after `after`. Who names
    none (older clients don't) gets some of them, if they are many."""
    wanted = str(arguments["application"])
    found = (
        id
        for id, record in tenure.lives.records()
        if record.status not in (Status.STOPPING, Status.FINISHING)
        and application_of(tenure, record.type, record.application) == wanted
    )
    if "after" in arguments:
        after = str(arguments["after"])
        page = nsmallest(PAGE_MAX + 1, (id for id in found if id > after))
        tenure.turns.draft.answer_value(envelope, {"ids": page[:PAGE_MAX], "more": len(page) > PAGE_MAX})
    else:
        tenure.turns.draft.answer_value(envelope, list(islice(found, PAGE_MAX)))


def _workers(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """The activities of an application's jobs (of all, if none is named) that have not ended: a page in the order of
    their ids, after `after`. Who names none (older clients don't) gets some of them, if they are many."""
    wanted, after = str(arguments.get("application", "")), str(arguments.get("after", ""))
    found = []
    for id, record in tenure.lives.records():
        for activity in record.activities:
            application = application_of(tenure, record.type, record.application)
            if not activity.has_ended and wanted in ("", application) and activity.id > after:
                found.append((activity.id, id, application, activity))
    found.sort(key=itemgetter(0))
    page, more = _page(
        _activity(tenure, activity) | {"job": id, "application": application} for _, id, application, activity in found
    )
    tenure.turns.draft.answer_value(envelope, {"workers": page, "more": more} if "after" in arguments else page)


def _topics(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    """Topics, and how many jobs have them: a page in the order of their names, as for `_workers`."""
    after = str(arguments.get("after", ""))
    names = nsmallest(PAGE_MAX + 1, (topic for topic in tenure.state.subscribers if topic > after))
    rows = [{"topic": topic, "jobs": len(tenure.state.subscribers[topic])} for topic in names[:PAGE_MAX]]
    if "after" in arguments:
        tenure.turns.draft.answer_value(envelope, {"topics": rows, "more": len(names) > PAGE_MAX})
    else:
        tenure.turns.draft.answer_value(envelope, {row["topic"]: row["jobs"] for row in rows})


def _dead_letters(tenure: "Tenure", envelope: Envelope, arguments: Arguments) -> None:
    after, limit = int(arguments.get("after", 0)), min(PAGE_MAX, int(arguments.get("limit", PAGE_MAX)))
    numbers = nsmallest(limit + 1, (n for n in tenure.state.dead if n > after))
    page, more = _page((_letter(tenure, tenure.state.dead[n]) for n in numbers), limit)
    tenure.turns.draft.answer_value(envelope, {"letters": page, "more": more})


def _letter(tenure: "Tenure", letter: DeadLetter) -> Arguments:
    envelope = letter.envelope
    return {
        "partition": tenure.partition,
        "n": letter.n,
        "to": envelope.to,
        "message": shown(envelope.body),
        "reason": letter.reason,
        "detail": letter.detail,
        "at_ms": letter.at_ms,
        "source": envelope.source,
        "id": envelope.id,
    }


def _exhume(tenure: "Tenure", envelope: Envelope, arguments: Arguments, count: int) -> tuple[str, int] | None:
    """Take dead letters out: deliver them again (`replay`), or not."""
    dead_letters, done = tenure.dead_letters, 0
    for n in arguments.get("letters", []):
        if done and tenure.taking.must_end():
            return str(n), count
        if (letter := dead_letters.take_out(n)) is None:
            continue
        dead, done = letter.envelope, done + 1
        if arguments.get("replay"):
            again = Envelope(dead.to, dead.body, Kind.MESSAGE, dead.id, 0, dead.source, dead.slot, dead.index)
            again.origin = dead.origin
            tenure.taking.deliver(again)
            tenure.turns.draft.other_bytes += envelope_bytes(again)
        count += 1
    dead_letters.thinned()
    tenure.turns.draft.answer_value(envelope, count)
    tenure.want_commit()
    return None


OPERATIONS: dict[str, Callable[..., Any]] = {
    "check": _check,
    "reconcile": _reconcile,
    "retry": _retry,
    "started": _started,
    "subscribed": _subscribed,
    "cancel": _cancel,
    "purge": _purge,
    "end": _end,
    "room": _room,
    "describe": _describe,
    "jobs": _jobs,
    "status": _status,
    "quiet": _quiet,
    "jobs_of": _jobs_of,
    "workers": _workers,
    "topics": _topics,
    "dead_letters": _dead_letters,
    "exhume": _exhume,
}
