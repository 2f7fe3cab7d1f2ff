"""What becomes of an activity, as a function: whatever is said, in whatever order, it ends once, by the right one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.scheduler.activities import Change, apply, begin, cancel, hear, lose, restored, run_of
from tenure.scheduler.activities_port import Outcome
from tenure.scheduler.activities_wire import Activity, ActivityEvent, ActivityPolicy, ActivityStatus, Report
from tenure.scheduler.wire import JobRecord, decode, encode

NOW = 1_000_000
ENDS = ("succeeded", "failed", "cancelled")


def wanted(name: str = "x", **policy: Any) -> Activity:
    return begin("job", 1, "job/1/started", name, "process", {}, ActivityPolicy(**policy), cluster="c", now_ms=NOW)


def test_names_are_the_same_for_the_same_turn_and_no_other() -> None:
    def named(job: str = "a/b c", generation: int = 1, turn: str = "t", name: str = "x", cluster: str = "c") -> str:
        return begin(job, generation, turn, name, "k", 1, ActivityPolicy(), cluster=cluster, now_ms=NOW).tag

    assert named() == named()
    others = [named("a/b d"), named(generation=2), named(turn="u"), named(name="y"), named(cluster="d")]
    assert len({named(), *others}) == 6
    assert named().startswith("a_b_c-")
    assert "/" not in named(job="../../etc/passwd")
    assert len(named(job="x" * 500)) < 100


def test_older_records_have_no_activities() -> None:
    stored = encode(["type", 1, 1, 1, "running", b"", 0, None, None, [], None, b"", ""])
    assert decode(stored, JobRecord).activities == ()
    assert decode(encode(JobRecord("type", 1, 1, 1, "running", b"", activities=(wanted(),))), JobRecord).activities == (
        wanted(),
    )


@given(st.data())
def test_whatever_is_said(data: st.DataObject) -> None:
    """Reports of several runs of several attempts, wishes and losses, in any order."""
    activity = wanted(attempts_max=3, tells_progress=data.draw(st.booleans()))
    ends: list[ActivityEvent] = []
    admitted: dict[str, str] = {}
    heard: list[tuple[str, str, int]] = []
    for step in range(data.draw(st.integers(1, 30))):
        what = data.draw(st.sampled_from(["started", "beat", "ended", "cancel", "lose"]))
        before, event = activity, None
        if what == "cancel":
            activity, event = cancel(activity, NOW + step)
            assert before.has_ended == (activity == before and before.status != ActivityStatus.CANCELLING)
        elif what == "lose":
            if not activity.has_ended:
                activity, event = lose(activity, Outcome(status="failed", error="Lost: x"), NOW + step)
        else:
            attempt = data.draw(st.integers(1, 3))
            nonce = data.draw(st.sampled_from(["one", "two"]))
            status: Any = data.draw(st.sampled_from(ENDS))
            report = Report(
                tag=f"{activity.run}.{attempt}",
                n=data.draw(st.integers(1, 9)),
                what=what,
                nonce=nonce,
                place="p",
                progress=(1, 2) if what == "beat" else None,
                outcome=Outcome(status=status) if what == "ended" else None,
            )
            verdict, change = hear(activity, report, NOW + step)
            if change is not None:
                activity, event = change
            if what == "started" and verdict == "go":
                assert admitted.setdefault(report.tag, nonce) == nonce, "one run is admitted to an attempt"
            if verdict in ("go", "cancel") and what != "started":
                assert admitted[report.tag] == nonce
            if change is not None and what == "beat":
                heard.append((report.tag, nonce, report.n))
        if event is not None and event.has_ended:
            ends.append(event)
        assert activity.id == before.id
        assert activity.attempt >= before.attempt
        assert not before.has_ended or activity == before, "what has ended stays so"
    assert len(ends) == activity.has_ended
    assert len(heard) == len(set(heard))
    assert all(event.status == activity.outcome for event in ends)
    assert decode(encode(activity), Activity) == activity


def failed_after(activity: Activity, run_s: float) -> Change:
    """Its next attempt is admitted, runs for so long, and fails."""
    started_ms = max(NOW, activity.due_ms)
    report = Report(tag=activity.tag, n=1, what="started", nonce=f"n{activity.attempt}")
    _, change = hear(activity, report, started_ms)
    assert change is not None
    return lose(change.activity, Outcome(status="failed", error="Lost: x"), started_ms + round(run_s * 1000))


@pytest.mark.parametrize(
    ("healthy_after_s", "runs_s", "ends"),
    [
        (None, [1000.0] * 3, True),
        (60.0, [59.9] * 3, True),
        (60.0, [60.0] * 10, False),
        (60.0, [1.0, 1.0, 60.0, 1.0], False),
        (60.0, [1.0, 1.0, 60.0, 1.0, 1.0], True),
    ],
)
def test_failures_are_counted_anew_after_an_attempt_that_was_well(
    healthy_after_s: float | None, runs_s: list[float], ends: bool
) -> None:
    activity = wanted(attempts_max=3, healthy_after_s=healthy_after_s)
    for number, run_s in enumerate(runs_s, 1):
        assert (activity.attempt, activity.status) == (number, "wanted"), "no number is used twice"
        activity, _ = failed_after(activity, run_s)
    assert activity.has_ended == ends


def test_the_pause_after_an_attempt_that_was_well_is_the_first_one() -> None:
    activity = wanted(attempts_max=9, healthy_after_s=60.0)
    pauses_s = []
    for run_s in (1.0, 1.0, 60.0, 1.0):
        end_ms = max(NOW, activity.due_ms) + round(run_s * 1000)
        activity, _ = failed_after(activity, run_s)
        pauses_s.append((activity.due_ms - end_ms) / 1000)
    assert pauses_s == [1.0, 2.0, 1.0, 2.0]


def test_an_attempt_that_was_never_admitted_was_not_well() -> None:
    activity = wanted(attempts_max=1, healthy_after_s=60.0)
    assert lose(activity, Outcome(status="failed"), NOW + 10**9).activity.has_ended


def test_records_of_before_count_all_attempts() -> None:
    stored: list[Any] = decode(encode(replace(wanted(), attempt=3)), list)
    assert (stored[-1], stored[5][-1]) == (0, None)
    stored[5] = stored[5][:-1]
    old = decode(encode(stored[:-1]), Activity)
    assert old == replace(wanted(), attempt=3)
    assert lose(old, Outcome(status="failed"), NOW).activity.has_ended
    later = decode(encode([*stored[:-1], 7, "of a version to come"]), Activity)
    assert later == replace(wanted(), attempt=3, forgiven=7)


def test_a_name_can_be_used_again_when_its_activity_has_ended() -> None:
    activities, _ = apply((), [("start", wanted("x")), ("start", wanted("y"))], NOW)
    activities, events = apply(activities, [("cancel", "x"), ("start", replace(wanted("x"), id="new"))], NOW)
    assert [(a.name, a.id == "new", a.status) for a in activities] == [("y", False, "wanted"), ("x", True, "wanted")]
    assert [event.status for event in events] == ["cancelled"]


@pytest.mark.parametrize("status", ["wanted", "running", "cancelling", "ended"])
def test_a_restored_cluster_begins_anew(status: str) -> None:
    activity = replace(wanted(), status=status, attempt=2, nonce="n", place="p", notes=msgspec.msgpack.encode({"a": 1}))
    found = restored("job", 1, activity, cluster="another", now_ms=NOW)
    if status == "ended":
        assert found == activity
    elif status == "cancelling":
        assert (found.status, found.outcome) == ("ended", "cancelled")
    else:
        assert (found.status, found.attempt, found.nonce, found.place) == ("wanted", 3, "", "")
        assert found.run != activity.run
        assert run_of("job", 1, found).notes == {"a": 1}
