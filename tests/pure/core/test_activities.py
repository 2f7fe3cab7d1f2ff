"""Activities of one tenure after another: launched once, admitted once, heard once, ended for certain."""

from typing import Any

import msgspec
import pytest
import trio

from tenure.scheduler.activities_wire import ActivityEvent, Report
from tenure.scheduler.context import Context
from tenure.scheduler.errors import NotDone
from tenure.scheduler.jobtype import Job, JobType, Retry
from tenure.scheduler.wire import Kind
from tests.pure.core.activities_bench import JOB, TYPES, Machines, committed
from tests.pure.core.bench import Bench, Opened, rest


@pytest.fixture
def machines(bench: Bench) -> Machines:
    return Machines(bench)


# -- launching ------------------------------------------------------------------------------------


async def test_an_activity_is_launched_after_its_commit_and_its_result_is_an_event(machines: Machines) -> None:
    opened = await machines.begin()
    assert await machines.ask(start="load", work={"file": "a.csv"}) == {"load": "wanted"}
    run = await machines.one.launched()
    assert run.run.work == {"file": "a.csv"}
    assert (run.run.job, run.run.activity, run.run.attempt) == (JOB, "load", 1)
    assert committed(opened)[0].status == "running"
    assert committed(opened)[0].tag == run.run.tag
    run.succeed({"rows": 3})
    await rest()
    assert await machines.heard() == [{"name": "load", "status": "succeeded", "attempt": 1, "result": {"rows": 3}}]
    assert await machines.ask() == {"load": "succeeded"}
    (shown,) = await machines.described()
    assert (shown["status"], shown["result"], shown["place"]) == ("succeeded", {"rows": 3}, "one")


async def test_an_attempt_that_ends_before_it_was_admitted_is_followed_by_the_next(machines: Machines) -> None:
    opened = await machines.begin()
    send = machines.one.send

    async def unheard(job: str, report: Report) -> str:
        await trio.sleep(1)
        raise NotDone("nobody answered")

    machines.one.send = unheard
    await machines.ask(start="load")
    await rest(5)
    (first,) = machines.one.runs.values()
    assert committed(opened)[0].status == "wanted"
    machines.one.send = send
    first.die()
    with trio.fail_after(100):
        second = await machines.one.launched()
    assert (second.run.attempt, committed(opened)[0].attempt) == (2, 2)
    second.succeed(3)
    await rest()
    heard = await machines.heard()
    assert [(event["attempt"], event["status"]) for event in heard] == [(2, "succeeded")]


async def test_a_turn_that_fails_starts_nothing(machines: Machines) -> None:
    await machines.begin()
    await machines.bench.publish(JOB, {"start": "load", "raise": "no"})
    await rest(100)
    assert machines.one.launches == 0
    assert await machines.described() == []


async def test_a_job_without_a_handler_for_them_has_activities_too(machines: Machines) -> None:
    opened = await machines.begin(type="deaf")
    await machines.bench.publish(JOB, {"start": "load"})
    run = await machines.one.launched()
    run.succeed(7)
    await rest()
    (shown,) = await machines.described()
    assert (shown["status"], shown["result"]) == ("succeeded", 7)
    assert not opened.state.mail


async def test_a_name_is_taken_until_its_activity_has_ended(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await machines.bench.publish(JOB, {"start": "load"})
    await rest(100)
    described = msgspec.msgpack.decode((await machines.bench.command("describe", JOB)).body)
    assert "activity 'load' is running: cancel it" in described["failure"]["error"]
    run.succeed()
    await rest()
    await machines.bench.command("retry", JOB)
    second = await machines.one.launched()
    assert second.run.id != run.run.id


async def test_work_is_what_json_can_hold(machines: Machines) -> None:
    await machines.begin()
    for work in ({1: "number"}, [{"a": {2: 3}}], float("nan"), b"bytes"):
        await machines.bench.publish(JOB, {"start": "load", "work": work})
        await rest(100)
        described = msgspec.msgpack.decode((await machines.bench.command("describe", JOB)).body)
        assert "WrongType: the work of an activity is made of what JSON can hold" in described["failure"]["error"]
        await machines.bench.command("retry", JOB, skip=True)
    assert machines.one.launches == 0


async def test_deadlines_that_make_no_sense_are_refused(machines: Machines) -> None:
    await machines.begin()
    for options in ({"timeout_s": 0}, {"cancel_deadline_s": -1}, {"orphan_after_s": 5.0, "heartbeat_s": 5.0}):
        await machines.bench.publish(JOB, {"start": "load"} | options)
        await rest(100)
        described = msgspec.msgpack.decode((await machines.bench.command("describe", JOB)).body)
        assert "Mistake" in described["failure"]["error"]
        await machines.bench.command("retry", JOB, skip=True)
    assert machines.one.launches == 0


async def test_a_kind_that_this_node_can_not_run_waits_for_one_that_can(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load", kind="spark")
    await rest(30)
    (shown,) = await machines.described()
    assert shown["status"] == "wanted"
    assert "can't run activities of kind 'spark'" in shown["waits_for"]
    assert sum("kind 'spark'" in report for report in machines.bench.reports) == 1
    opened.tenure.host.launchers = {"spark": machines.two}
    assert (await machines.two.launched()).run.kind == "spark"


# -- taking over ----------------------------------------------------------------------------------


async def test_the_next_owner_finds_what_runs_on_its_machine(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await first.kill()
    await rest(10)
    second = await machines.open()
    await rest(10)
    assert machines.one.launches == 1
    assert committed(second)[0].attempt == 1
    run.succeed(1)
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["succeeded"]


async def test_the_next_owner_on_another_machine_hears_from_it(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await first.close()
    await machines.open(machines.two)
    await rest(1000)
    assert (machines.one.launches, machines.two.launches) == (1, 0)
    (shown,) = await machines.described()
    assert shown["place"] == "one"
    assert shown["heard_ms"] > machines.bench.now_ms() - 10_000
    run.succeed(1)
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["succeeded"]


async def test_a_crash_after_the_commit_and_before_the_launch(machines: Machines) -> None:
    first = await machines.begin()
    first.tenure.host.launchers = {}
    await machines.ask(start="load")
    await first.kill()
    await machines.open(machines.two)
    run = await machines.two.launched()
    assert run.run.attempt == 1


async def test_of_two_that_were_launched_one_is_admitted(machines: Machines) -> None:
    """A zombie launches what its successor has launched on another machine."""
    await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await machines.two.launch(run.run)
    (other,) = machines.two.runs.values()
    await other.over.wait()
    assert not other.working.is_set()
    assert other.outcome is not None
    assert "Fenced" in other.outcome.error
    assert machines.working() == 1
    run.succeed()
    await rest()
    assert len(await machines.heard()) == 1


# -- attempts -------------------------------------------------------------------------------------


async def test_a_failed_attempt_is_followed_by_the_next_after_a_pause(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load", delay_s=30)
    first = await machines.one.launched()
    await first.note("app", "application_17")
    first.fail("IOError: disk")
    await rest(20)
    (shown,) = await machines.described()
    assert (shown["status"], shown["attempt"], shown["error"]) == ("wanted", 2, "IOError: disk")
    assert await machines.heard() == []
    second = await machines.one.launched()
    assert second.run.attempt == 2
    assert second.run.notes == {"app": "application_17"}
    assert second.run.tag != first.run.tag
    second.succeed()
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["succeeded"]


async def test_the_last_attempt_that_fails_is_the_end(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load", attempts_max=2)
    for _ in range(2):
        (await machines.one.launched()).fail("IOError: disk")
    await rest(100)
    (heard,) = await machines.heard()
    assert heard == {"name": "load", "status": "failed", "attempt": 2, "result": None, "error": "IOError: disk"}
    assert machines.one.launches == 2


async def test_what_is_final_is_not_tried_again(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load")
    (await machines.one.launched()).fail("NoSuchTable: x", final=True)
    await rest(100)
    assert [event["attempt"] for event in await machines.heard()] == [1]


async def test_one_that_dies_without_a_word_is_noticed_on_its_machine_at_once(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load", tells_progress=True)
    (await machines.one.launched()).die()
    began_s = trio.current_time()
    second = await machines.one.launched()
    assert trio.current_time() - began_s < 5
    assert second.run.attempt == 2
    second.succeed()
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["retrying", "succeeded"]
    assert "Lost" in (await machines.heard())[0]["error"]


async def test_one_that_dies_elsewhere_is_missed_when_it_is_silent_for_long_enough(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load", orphan_after_s=60)
    run = await machines.one.launched()
    await first.close()
    second = await machines.open(machines.two)
    await rest(50)
    run.die()
    await rest(60)
    assert machines.two.launches == 0
    await rest(30)
    assert machines.two.launches == 1
    assert committed(second)[0].place == "two"


async def test_one_that_is_cut_off_ends_itself_before_another_machine_tries_again(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load", orphan_after_s=60)
    run = await machines.one.launched()
    run.is_stubborn = True
    await first.close()
    await machines.open(machines.two)
    run.cut_off = True
    with trio.fail_after(70):
        await run.told_to_end.wait()
    second = await machines.two.launched()
    assert run.over.is_set()
    assert machines.working() == 1
    assert run.outcome is not None
    assert "Orphaned" in run.outcome.error
    run.cut_off = False
    second.succeed()
    await rest()
    assert [event["attempt"] for event in await machines.heard()] == [2]


async def test_what_it_had_still_to_say_counts_although_its_machine_tells_its_end_first(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    run.cut_off = True
    run.tell(progress=[1, 3], metrics={"rows": 5})
    await rest(2)
    run.tell(progress=[2, 3], metrics={"files": 1})
    run.succeed()
    await rest(5)
    assert not run.over.is_set()
    (activity,) = committed(opened)
    assert activity.outcome == "succeeded"
    assert activity.progress == (2, 3)
    assert msgspec.msgpack.decode(activity.details)["metrics"] == {"rows": 5, "files": 1}


async def test_a_new_owner_is_patient_from_its_own_beginning(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load", orphan_after_s=600)
    run = await machines.one.launched()
    await first.kill()
    await rest(500)
    await machines.open(machines.two)
    await rest(60)
    assert machines.two.launches == 0
    run.succeed()
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["succeeded"]


async def test_an_attempt_that_was_given_up_is_told_so(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    assert await run.confirm() == "go"
    machines.one.runs[run.run.tag].outcome = None
    machines.one.runs.pop(run.run.tag)  # its folder is lost: it is taken for dead
    await rest(5)
    assert committed(opened)[0].attempt == 2
    assert await run.confirm() == "fenced"
    await run.over.wait()
    assert "load" in await machines.ask()
    assert [event["attempt"] for event in await machines.heard()] == []


async def test_one_that_takes_too_long_or_says_nothing_has_failed(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="slow", timeout_s=50, attempts_max=1)
    slow = await machines.one.launched()
    await machines.ask(start="mute", stall_after_s=20, attempts_max=1)
    mute = await machines.one.launched()
    mute.tell(beat=True)
    with trio.fail_after(25):
        await mute.over.wait()
    assert not slow.over.is_set()
    await slow.over.wait()
    await rest()
    errors = {event["name"]: event["error"] for event in await machines.heard()}
    assert errors["slow"] == "TimedOut: it took longer than 50 s"
    assert errors["mute"] == "Stalled: nothing was heard of it for 20 s"


# -- cancelling -----------------------------------------------------------------------------------


async def test_cancelled_it_is_asked_first(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    assert await machines.ask(cancel="load") == {"load": "cancelling"}
    await run.over.wait()
    assert run.told_to_end.is_set()
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["cancelled"]
    assert machines.one.launches == 1


async def test_cancelled_it_is_ended_by_force_after_its_deadline(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load", cancel_deadline_s=20)
    run = await machines.one.launched()
    run.is_stubborn = True
    await machines.ask(cancel="load")
    with trio.move_on_after(19):
        await run.over.wait()
    assert not run.over.is_set()
    with trio.fail_after(3):
        await run.over.wait()
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["cancelled"]


async def test_cancelled_it_hears_of_it_on_another_machine(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await first.close()
    await machines.open(machines.two)
    await machines.ask(cancel="load")
    with trio.fail_after(10):
        await run.over.wait()
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["cancelled"]


async def test_cancelled_before_it_was_launched_it_never_is(machines: Machines) -> None:
    opened = await machines.begin()
    launchers, opened.tenure.host.launchers = opened.tenure.host.launchers, {}
    await machines.ask(start="load")
    assert await machines.ask(cancel="load") == {"load": "cancelled"}
    opened.tenure.host.launchers = launchers
    await rest(100)
    assert machines.one.launches == 0
    assert [event["status"] for event in await machines.heard()] == ["cancelled"]


async def test_started_and_cancelled_in_one_turn(machines: Machines) -> None:
    await machines.begin()
    assert await machines.ask(start="load", cancel="load") == {"load": "cancelled"}
    await rest(100)
    assert machines.one.launches == 0


async def test_what_a_cancelled_one_had_achieved_already_counts(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await first.close()
    await machines.open(machines.two)
    await machines.ask(cancel="load")
    assert await run.confirm() == "cancel"
    await run.over.wait()
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["cancelled"]


async def test_the_command_cancel_ends_activities_and_pause_leaves_them(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await machines.bench.define(JOB, "importer", revision=2, wanted="paused")
    await rest(100)
    assert opened.state.jobs[JOB].status == "paused"
    run.tell(progress=[1, 4])
    await rest()
    (shown,) = await machines.described()
    assert (shown["status"], shown["progress"]) == ("running", [1, 4])
    await machines.bench.command("cancel", JOB)
    await run.over.wait()
    await rest()
    assert (await machines.described())[0]["status"] == "cancelled"
    assert await machines.heard() == []
    await machines.bench.define(JOB, "importer", revision=3, wanted="running")
    await rest()
    assert [event["status"] for event in await machines.heard()] == ["cancelled"]


# -- removal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_removed_job_goes_when_its_activities_have_ended(machines: Machines, stubborn: bool) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    run.is_stubborn = stubborn
    await machines.bench.define(JOB, "importer", revision=2, wanted="removed")
    await rest(0.1)  # its owner has proved it
    await machines.bench.publish(JOB, {"start": "late"})
    await rest(5)
    assert (JOB in opened.state.jobs) is stubborn
    assert (await machines.bench.command("reconcile", JOB, revision=2)).ok
    assert machines.working() == 0
    assert JOB not in opened.state.jobs
    await rest(100)
    assert run.over.is_set()
    assert machines.one.launches == 1


async def test_a_job_that_finishes_ends_its_activities(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await machines.ask(finish=True)
    await run.over.wait()
    await rest()
    assert JOB not in opened.state.jobs


async def test_a_job_that_this_node_can_not_run_goes_when_its_activities_have_ended(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    await first.close()
    second = await machines.open(machines.two, TYPES[1])
    await machines.bench.define(JOB, "importer", revision=2, wanted="removed")
    await run.over.wait()
    await rest(10)
    assert JOB not in second.state.jobs
    assert not second.state.mail


async def test_who_was_not_told_of_the_removal_hears_it_when_it_asks(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    run.cut_off = True
    await machines.bench.define(JOB, "importer", revision=2, wanted="removed")
    await rest(5)
    run.cut_off = False
    await run.over.wait()
    await rest()
    assert JOB not in opened.state.jobs
    report = {"tag": run.run.tag, "n": 99, "what": "beat", "nonce": "x"}
    answer = await machines.bench.ask(JOB, report, kind=Kind.REPORT)
    assert msgspec.msgpack.decode(answer.body) == {"verdict": "fenced"}


# -- reports --------------------------------------------------------------------------------------


async def test_progress_and_details_are_kept_and_told_to_those_who_ask(machines: Machines) -> None:
    first = await machines.begin()
    await machines.ask(start="load", tells_progress=True)
    run = await machines.one.launched()
    run.tell(progress=[1, 2], metrics={"rows": 10, "bad": 0})
    run.tell(metrics={"rows": 20}, stage={"name": "parse", "number": 1, "of": 3, "batch": 7})
    await rest(2)
    (shown,) = await machines.described()
    assert shown["progress"] == [1, 2]
    assert shown["details"]["metrics"] == {"rows": 20, "bad": 0}
    assert shown["details"]["stage"]["batch"] == 7
    await first.kill()
    await machines.open()
    assert (await machines.described())[0]["progress"] == [1, 2]
    assert [event["status"] for event in await machines.heard()] == ["progress"]


async def test_what_it_tells_a_paused_job_of_itself_is_bounded(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load", tells_progress=True)
    run = await machines.one.launched()
    await machines.bench.define(JOB, "importer", revision=2, wanted="paused")
    for n in range(400):
        run.tell(info={"n": n, "pad": "x" * 60_000})
        await rest(1)
    bytes_max = opened.tenure.settings.mailbox_bytes_max
    assert bytes_max <= opened.tenure.lives.of(JOB).mail_bytes < bytes_max + 100_000
    run.succeed("done")
    await rest(5)
    await machines.bench.define(JOB, "importer", revision=3, wanted="active")
    await rest(5)
    assert (await machines.heard())[-1]["result"] == "done"


async def test_a_report_that_is_sent_again_counts_once(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load", tells_progress=True)
    run = await machines.one.launched()
    report: dict[str, Any] = {"tag": run.run.tag, "n": 50, "what": "beat", "nonce": run._attempt.nonce}
    for _ in range(3):
        await machines.bench.ask(JOB, report | {"progress": [1, 2]}, kind=Kind.REPORT)
    await machines.bench.ask(JOB, report | {"n": 49, "progress": [0, 2]}, kind=Kind.REPORT)
    assert (await machines.described())[0]["progress"] == [1, 2]
    assert [event["status"] for event in await machines.heard()] == ["progress"]


async def test_heartbeats_change_nothing_in_the_journal_but_cursors(machines: Machines) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    await machines.one.launched()
    slot = opened.state.next_slot
    await rest(60)
    records = [await machines.bench.record(n) for n in range(slot + 1, opened.state.next_slot)]
    assert len(records) >= 10
    assert not any(record.jobs or record.mailed for record in records if record is not None)


async def test_notes_that_are_too_large_are_refused(machines: Machines) -> None:
    await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()
    assert await run.note("small", 1) == "go"
    assert await run.note("large", "x" * 100_000) == "too_large"
    assert (await machines.described())[0]["notes"] == {"small": 1}


async def test_what_is_no_report_is_refused(machines: Machines) -> None:
    await machines.begin()
    answer = await machines.bench.ask(JOB, {"nonsense": 1}, kind=Kind.REPORT)
    assert not answer.ok
    assert b"no report" in bytes(answer.body)


async def test_a_launcher_that_fails_stops_nobody_else(machines: Machines) -> None:
    opened = await machines.begin()

    class Broken:
        place = "one"

        async def find(self, tag: str) -> Any:
            raise RuntimeError("broken")

    opened.tenure.host.launchers = {"process": Broken()}  # type: ignore[dict-item]
    await machines.ask(start="load")
    await rest(10)
    (shown,) = await machines.described()
    assert "RuntimeError: broken" in shown["waits_for"]
    opened.tenure.host.launchers = {"process": machines.one}
    await machines.one.launched()


async def test_a_run_that_can_not_be_looked_at_is_missed_when_it_is_silent(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk with its folder fails: what it says still counts, and its silence."""
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()

    async def find(tag: str) -> Any:
        if tag == run.run.tag:
            raise OSError(5, "Input/output error")
        return await type(machines.one).find(machines.one, tag)

    monkeypatch.setattr(machines.one, "find", find)
    await rest(300)
    (shown,) = await machines.described()
    assert (shown["status"], shown["waits_for"]) == (
        "running",
        "its run can't be looked at: OSError: [Errno 5] Input/output error",
    )
    monkeypatch.undo()
    await rest(5)
    assert (await machines.described())[0]["waits_for"] == ""
    monkeypatch.setattr(machines.one, "find", find)
    run.die()
    await rest(100)
    assert committed(opened)[0].attempt == 1
    await rest(60)
    assert committed(opened)[0].attempt == 2
    assert "nothing was heard from one" in committed(opened)[0].error


async def test_one_whose_wrapper_hangs_is_ended_when_it_would_have_ended_itself(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await machines.begin()
    await machines.ask(start="load")
    run = await machines.one.launched()

    async def hang(*_: Any) -> Any:
        await trio.sleep_forever()

    monkeypatch.setattr(run, "report", hang)
    run._attempt._reason = "orphaned"  # nothing looks at its clocks
    await rest(100)
    assert committed(opened)[0].attempt == 1
    await rest(60)
    assert run.over.is_set()
    again = await machines.one.launched()
    assert (again.run.attempt, machines.working()) == (2, 1)


async def test_an_idle_job_with_ended_activities_has_no_task(machines: Machines) -> None:
    opened = await machines.begin()
    for n in range(20):
        await machines.ask(start=f"load{n}")
        (await machines.one.launched()).succeed(n)
        await rest()
    await rest(10)
    assert [activity.name for activity in committed(opened)] == [f"load{n}" for n in range(11, 20)]
    assert not opened.tenure.supervisor._watches
    assert len(await machines.heard()) == 20


# -- its turn goes on meanwhile -------------------------------------------------------------------


class Undecided(Job):
    """Wants its work done anew, and takes its time over it."""

    heard: list[str] = []

    async def on_message(self, ctx: Context, message: float) -> None:
        for name in ctx.activities or (f"w{n}" for n in range(10)):
            ctx.cancel_activity(name)
            ctx.start_activity(name, {}, kind="spark")
        await trio.sleep(message)

    def on_activity(self, ctx: Context, event: ActivityEvent) -> None:
        self.heard.append(f"{event.name} {event.status}")


async def undecided(machines: Machines) -> Opened:
    opened = await machines.open(None, JobType("undecided", Undecided, retry=Retry(attempts_max=2, first_delay_s=60.0)))
    await machines.bench.define(JOB, "undecided")
    await machines.bench.publish(JOB, 0)
    await rest()
    return opened


async def test_one_that_begins_while_its_turn_replaces_it_fails_the_turn_and_not_the_node(machines: Machines) -> None:
    opened = await undecided(machines)
    first = committed(opened)
    await machines.bench.publish(JOB, 5)
    await rest()
    report = {"tag": first[0].tag, "n": 1, "what": "started", "nonce": "x"}
    answer = await machines.bench.ask(JOB, report, kind=Kind.REPORT)
    assert msgspec.msgpack.decode(answer.body) == {"verdict": "go"}
    await rest(10)
    assert not opened.ended.is_set()
    described = msgspec.msgpack.decode((await machines.bench.command("describe", JOB)).body)
    assert "Mistake: activity 'w0' is cancelling" in described["failure"]["error"]
    assert [activity.id for activity in committed(opened)] == [activity.id for activity in first]
    assert [activity.status for activity in committed(opened)] == ["running", *["wanted"] * 9]


async def test_those_that_are_replaced_in_one_turn_before_they_began_have_ended(machines: Machines) -> None:
    opened = await undecided(machines)
    first = committed(opened)
    await machines.bench.publish(JOB, 0)
    await rest()
    assert not opened.ended.is_set()
    assert await machines.heard() == [f"w{n} cancelled" for n in range(10)]
    assert [activity.status for activity in committed(opened)] == ["wanted"] * 10
    assert not {activity.id for activity in committed(opened)} & {activity.id for activity in first}


async def test_what_a_turn_starts_while_its_job_is_to_go_never_begins(machines: Machines) -> None:
    opened = await undecided(machines)
    await machines.bench.publish(JOB, 5)
    await rest()
    await machines.bench.define(JOB, "undecided", revision=2, wanted="removed")
    await rest(10)
    assert JOB not in opened.state.jobs
    assert not opened.state.mail
