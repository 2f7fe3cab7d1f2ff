"""What reports of activities may be made of, and how much of them is kept: programs may say anything.

A report travels in a slot, and its event waits in a mailbox, in records and images: what no decoder takes would take
with it what lies beside it (see `bodies`). So it is refused in the wrapper, and looked at again by the job's owner, as
wrappers and their folders may be of an older version.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from tenure.scheduler.activities_port import Outcome
from tenure.scheduler.activities_wire import Activity, merged
from tenure.scheduler.bodies import encoded
from tenure.scheduler.errors import Mistake
from tenure.scheduler.texts import storable

__all__ = [
    "DETAILS_BYTES_MAX",
    "NOTES_BYTES_MAX",
    "TOLD_BYTES_MAX",
    "details_with",
    "progress_of",
    "room",
    "sound",
    "why_odd",
]

DETAILS_BYTES_MAX = 64 * 1024
NOTES_BYTES_MAX = 64 * 1024
TOLD_BYTES_MAX = 2**20
"""Details, notes and results of all activities of one job together: they stand in its record."""
SAID_BYTES_MAX = 3 * 2**20
"""What a wrapper can hear in one line has fewer."""
PROGRESS_MAX = 2**63 - 1
_encode = msgspec.msgpack.Encoder().encode


def why_odd(value: Any, what: str) -> str:
    """Why nobody could store this; empty: it can be."""
    try:
        encoded(value, what, SAID_BYTES_MAX)
    except Mistake as error:
        return str(error)
    return ""


def sound(outcome: Outcome) -> Outcome:
    """The same outcome, if it can be stored. One whose result can't be has failed, and is not tried again."""
    why = why_odd(outcome.result, "its result") if outcome.result is not None else ""
    if why:
        failed = outcome.status == "succeeded"
        outcome = replace(
            outcome,
            status="failed" if failed else outcome.status,
            result=None,
            error=f"WrongType: {why}: report where it is, or less of it" if failed else outcome.error,
            final=failed or outcome.final,
        )
    error, traceback = storable(outcome.error), storable(outcome.traceback)
    if (error, traceback) != (outcome.error, outcome.traceback):
        outcome = replace(outcome, error=error, traceback=traceback)
    return outcome


def progress_of(said: Any) -> tuple[int, int] | None:
    """How far it is, by what was said; None: that is no such thing."""
    if not isinstance(said, list | tuple) or len(said) != 2 or any(type(part) is not int for part in said):
        return None
    done, total = said
    return (done, total) if 0 <= done <= PROGRESS_MAX and 0 <= total <= PROGRESS_MAX else None


def details_with(known: dict[str, Any], news: dict[str, Any], bytes_max: int = DETAILS_BYTES_MAX) -> dict[str, Any]:
    """Details with what is new of them; where they are too many, or can't be stored, a word of that instead."""
    details = merged(known, news)
    if why := why_odd(news, "what it shows of itself"):
        return {**known, "left_out": why}
    size = len(_encode(details))
    if size <= bytes_max:
        return details
    return {"left_out": f"{size} bytes of details: more than {max(0, bytes_max)} are not kept"}


def room(activities: Iterable[Activity], but: Activity) -> int:
    """So many bytes may this one's details and notes have, beside what the others of its job keep."""
    others = (activity for activity in activities if activity.id != but.id)
    kept = sum(len(activity.details) + len(activity.notes) + len(activity.result) for activity in others)
    return max(0, TOLD_BYTES_MAX - kept)
