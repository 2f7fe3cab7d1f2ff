"""The command line: exit codes, errors in a sentence, and nothing slow before it is needed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenure.cli import main
from tenure.cli.app import COMMANDS, build_app
from tenure.cli.ends import Exit, Failed, explain, first_error
from tenure.scheduler.errors import DuplicateJob, NotDone, TooLarge, UnknownJob, WrongType

NOBODY = ["--cluster", "nowhere@127.0.0.1:9", "--connect-timeout", "0.3"]


pytestmark = pytest.mark.usefixtures("logs_as_they_were")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    assert "Traceback" not in found.err + found.out
    return found.err


def test_help_names_every_command_and_imports_nothing_slow() -> None:
    program = (
        "import sys; from tenure.cli import main; code = main(['--help']); "
        "slow = {'trio', 'msgspec', 'hazelcast', 'structlog', 'psutil'} & sys.modules.keys(); "
        "sys.exit(code or (f'imported {slow}' if slow else 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f" {name} " in done.stdout for name, *_ in COMMANDS)


@pytest.mark.parametrize("name", [name for name, *_ in COMMANDS if name not in ("simulate", "bench")])
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == Exit.DONE
    assert "Usage:" in capsys.readouterr().out


def test_its_help_says_more_than_its_line_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "--help"]) == Exit.DONE
    told = " ".join(capsys.readouterr().out.split())
    assert 'With neither: lines like {"to": "clicks", "message": {"n": 1}, "id": "order-17"}' in told
    assert "Parameters ----" not in told


def test_the_shell_can_complete_commands() -> None:
    script = build_app().generate_completion(shell="bash")
    assert all(name in script for name in ("dead-letters", "publish", "unschedule"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["publsh", "a", "{}"], """Unknown command "publsh". Did you mean "publish"? See `tenure --help`."""),
        (["state"], "ID"),
        (["state", "a", "--no-such-option"], "--no-such-option"),
        (["publish", "a", "{n: 1}"], "the message is no JSON"),
        (["publish", "a", "NaN"], "NaN is not JSON"),
        (["ask", "a", "{"], "the message is no JSON"),
        (["schedule", "counter", "a", "total"], "write NAME=VALUE"),
        (["schedule", "counter", "a", "--params", "[1]"], "must be a JSON object"),
        (["publish", "a", "1", "--topic", "--all"], "--topic and --all"),
        (["jobs", "type=a", "adn", "b"], "column 8"),
        (["pause"], "Say which jobs"),
        (["dead-letters", "discard"], "Say which letters"),
        (["state", "a", "--timeout", "0"], 'value "0.0" for --timeout. Give it more than 0 seconds.'),
        (["publish", "a", "[" * 100_000], "is no JSON"),
        (["state", "a", "--connect-timeout=-1"], "--connect-timeout"),
        (["wait", "shop", "--within", "nan"], "--within"),
        (["scale", "add-node", "--spawn", "x", "--within=-1"], "--within"),
        (["node", "app.py", "--drain-deadline=-1"], "for --drain-deadline. Give it 0 seconds or more."),
        (["node", "app.py", "--turn-deadline=-1"], "--turn-deadline"),
        (["node", "app.py", "--give-up-after", "0"], "--give-up-after"),
        (["state", "a", "--cluster", "x@"], "names no cluster"),
        (["demo", "--jobs", "0"], "at least one job"),
        (["chaos", "--seconds", "5"], "nothing could happen"),
        (["chaos", "--members", "2"], "at least two nodes and three members"),
        (["chaos", "--rate", "0"], "at least one job and one message"),
        (["member", "--backups", "7"], "backups is 7"),
        (["member", "--join", "here"], "write host:port"),
        (["node", "app.py", "--set", "nonsense=1"], "--set nonsense=1: write NAME=VALUE"),
        (["node", "app.py", "--set", "sweep_s=soon"], "--set:"),
        (["node", "app.py", "--prefer-network", "10.0.0.0/99"], "--prefer-network"),
        (["node", "app.py", "--log-level", "loud"], "--log-level is debug"),
        (["node", "no_such_app.py"], "no_such_app.py"),
        (["dev", "no_such_app.py"], "There is no file no_such_app.py"),
        (["dev", "no_such_app"], "There is no module no_such_app"),
        (["dev", "tenure.no_such_app"], "There is no module tenure.no_such_app"),
        (["dev", "tenure.about.no_such_app"], "There is no module tenure.about.no_such_app"),
        (["member", "--memory", "0"], "--memory is 0: a member's heap takes at least 16 MiB"),
        (["bench", "spark", "--kills", "-1"], "-1 is less than 1"),
        (["snapshot", "backups", "--every", "soon"], "--every soon"),
        (["snapshot", "backups", "--every", "1h", "--stop"], "not both"),
        (["snapshots", "list", "nonsense://place"], "nonsense"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == Exit.USAGE
    assert sentence in said(capsys)


def test_nobody_to_reach(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["state", "a"], ["spark", "list"]):
        assert main([*command, *NOBODY]) == Exit.UNREACHABLE
        assert "nothing listens there" in said(capsys)


def test_the_doctor_says_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *NOBODY, "--json"]) == Exit.UNREACHABLE
    verdicts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (members,) = [verdict for verdict in verdicts if verdict["about"] == "members"]
    assert members["standard"] == "bad"
    assert members["next_step"]


def test_errors_are_json_where_results_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "a", *NOBODY, "--json"]) == Exit.UNREACHABLE
    error = json.loads(capsys.readouterr().err)
    assert error["exit_code"] == 3
    assert error["error"] == "CannotConnect"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["bench", "--only", "nope"], "there is no 'nope', only "),
        (["bench", "--grid", "memory", "--only", "nope"], "there is no 'nope', only "),
        (["bench", "--repeat", "0"], "0 is less than 1"),
        (["bench", "operations", "--only", "nope"], "only member-change, "),
        (["bench", "operations", "--nonsense"], "--nonsense"),
        (["bench", "spark", "--only", "nope"], "only overhead, "),
        (["bench", "spark", "--seed", "x"], "invalid int value: 'x'"),
        (["simulate", "--seeds", "0"], "at least 1, not 0"),
    ],
)
def test_so_are_those_of_what_reads_its_own_arguments(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == Exit.USAGE
    told = capsys.readouterr()
    error = json.loads(told.err)
    assert (error["error"], error["exit_code"], told.out) == ("Usage", 2, "")
    assert what in error["what"]
    assert "--help`." in error["what"]
    assert main(arguments) == Exit.USAGE
    assert said(capsys) == f"tenure: {error['what']}\n"


@pytest.mark.parametrize(
    ("error", "code", "next_step"),
    [
        (UnknownJob("there is no job 'a'"), Exit.FAILED, "tenure jobs"),
        (DuplicateJob("job 'a' exists"), Exit.FAILED, ""),
        (WrongType("message to 'a'"), Exit.USAGE, "annotations"),
        (TooLarge("message to 'a'"), Exit.USAGE, "Send less"),
        (PermissionError(13, "Permission denied", "/x"), Exit.FAILED, "/x: Permission denied. Name another path"),
        (OSError("no room"), Exit.FAILED, "no room. See `tenure doctor`"),
        (NotDone("no answer"), Exit.UNREACHABLE, "tenure doctor"),
        (Failed("2 jobs were not paused."), Exit.FAILED, ""),
        (KeyboardInterrupt(), Exit.FAILED, "interrupted"),
        (RuntimeError("odd"), Exit.FAILED, "--debug"),
        (BaseExceptionGroup("", [KeyboardInterrupt(), ExceptionGroup("", [NotDone("x")])]), Exit.UNREACHABLE, ""),
    ],
)
def test_each_error_has_its_code_and_next_step(
    error: BaseException, code: Exit, next_step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(error, as_json=False) == code
    assert next_step in said(capsys)


def test_debug_shows_where_it_happened() -> None:
    with pytest.raises(BaseException) as caught:
        main(["state", "a", *NOBODY, "--debug"])
    assert type(first_error(caught.value)).__name__ == "CannotConnect"


def test_the_members_configuration_is_printed_for_members_run_by_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["member", "--print-config", "--members-count", "3", "--join", "10.0.0.1:5701,10.0.0.2:5701"]) == 0
    config = capsys.readouterr().out
    assert "minimum-cluster-size: 2" in config
    assert '"10.0.0.2:5701"' in config
    assert main(["member", "--print-config", "--members-count", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"config"}
    assert "minimum-cluster-size: 2" in found["config"]


def test_an_applications_mistake_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "broken_app.py"
    app.write_text("import tenure\n\nnonsense\n")
    assert main(["node", str(app)]) == Exit.USAGE
    error = said(capsys)
    assert "broken_app.py" in error
    assert "line 3" in error
    assert "NameError" in error


def test_that_nothing_listens_on_this_machine_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    for addresses in ("127.0.0.1:9", "127.0.0.1:9,localhost:9"):
        began_s = time.monotonic()
        assert main(["jobs", "--cluster", f"nowhere@{addresses}"]) == Exit.UNREACHABLE
        assert time.monotonic() - began_s < 1
        assert "127.0.0.1:9" in (said := capsys.readouterr().err)
        assert "nothing listens there. Start a member" in said


def test_what_is_waited_for_is_said_after_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--cluster", "nowhere@127.0.0.1:9", "--connect-timeout", "1.6"]) == Exit.UNREACHABLE
    assert capsys.readouterr().err.startswith("waiting for nowhere@127.0.0.1:9 …\ntenure: No connection")
