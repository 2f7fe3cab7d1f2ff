"""`tenure simulate`: its exit codes, its last line, and the command that replays."""

import json
import shlex

import pytest

from tenure.cli import main as tenure
from tenure.simulation import command
from tenure.simulation.mutants import DEFENCES
from tenure.simulation.workloads import BULK, NOT_YET, OTHERS, SAVING, SPECIAL

CAUGHT = ["--without", "write-once", "--seeds", "6"]


def simulate(*arguments: str) -> int:
    return tenure(["simulate", *arguments])


def test_the_last_line_says_what_many_seeds_came_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "3", "--from", "7", "--json") == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary.keys() == {"seeds", "violations", "seeds_per_minute", "operations", "faults", "calm_success"}
    assert (summary["seeds"], summary["violations"]) == (3, 0)
    assert summary["operations"] > 0
    assert all(count > 0 for count in summary["faults"].values())
    assert 0 < summary["calm_success"] <= 1
    assert summary["seeds_per_minute"] > 0


def test_for_people_it_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "1") == 0
    assert "1 seeds, 0 violations" in capsys.readouterr().out


def test_all_defences_are_named_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--list-defences") == 0
    assert tuple(capsys.readouterr().out.split()) == DEFENCES


def test_a_violation_comes_with_a_trace_and_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*CAUGHT) == 1
    told = capsys.readouterr().out
    assert "violation in seed" in told
    (replay,) = [line.removeprefix("replay: ") for line in told.splitlines() if line.startswith("replay: ")]
    program, *arguments = shlex.split(replay)
    assert program == "tenure"
    assert tenure(arguments) == 1
    again = capsys.readouterr().out
    violations = [line for line in told.splitlines() if line.startswith("violation in seed")]
    assert [line for line in again.splitlines() if line.startswith("violation in seed")] == violations


def test_it_stops_at_the_first_violation_unless_told_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*CAUGHT, "--json") == 1
    told = capsys.readouterr()
    summary = json.loads(told.out)
    assert (summary["violations"], summary["seeds"] < 6) == (1, True)
    assert "replay: " in told.err, "with --json, what is no JSON goes to the other stream"
    assert simulate(*CAUGHT, "--json", "--keep-going") == 1
    summary = json.loads(capsys.readouterr().out)
    assert summary["violations"] > 1
    assert summary["seeds"] == 6


def test_workloads_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "1", "--workload", "Timing", "--workload", "Beside", "--trace") in (0, 1)
    assert "(Timing, Beside)" in capsys.readouterr().out


def test_what_no_seed_draws_yet_can_be_named_and_says_why() -> None:
    assert not {*SPECIAL, *OTHERS, *BULK, *SAVING} & set(NOT_YET)
    assert all(NOT_YET.values())


@pytest.mark.parametrize(
    "arguments",
    [["--without", "hope"], ["--seeds", "0"], ["--seeds", "many"], ["--nonsense"], ["--from"], ["--workload", "Sleep"]],
)
def test_wrong_usage_is_neither_success_nor_violation(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(*arguments) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.endswith("See `tenure simulate --help`.")
    assert simulate(*arguments, "--json") == 2
    told = capsys.readouterr()
    error = json.loads(told.err)
    assert (error["error"], error["exit_code"], told.out) == ("Usage", 2, "")
    assert f"tenure: {error['what']}" == sentence


def test_a_simulator_that_broke_is_no_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seed: int, **options: object) -> None:
        raise KeyError("the simulator's own mistake")

    monkeypatch.setattr(command, "run_seed", broken)
    assert simulate("--seeds", "1") == 1
    assert "says nothing about the engine" in capsys.readouterr().err
