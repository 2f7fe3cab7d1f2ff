"""External commands: kept running, restarted, and what they answer wrongly is told with the line that caused it."""

import os
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.jobs.pipelines.command import Operator
from tenure.jobs.pipelines.errors import BadRecord, CommandFailed, NotExecutable
from tenure.jobs.pipelines.protocol import BadAnswer, asked, parse

ONE_LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20)
RECORDS = [(f"input.txt:{number}", f"value {number}") for number in range(5000)]


@pytest.fixture
def script(tmp_path):
    def make(body):
        path = tmp_path / "command.py"
        path.write_text(f"#!{sys.executable} -S\nimport os, sys\n" + textwrap.dedent(body))
        path.chmod(0o755)
        return Operator([str(path)], tmp_path, label="1-command", timeout_s=20)

    return make


FORWARD = """
    for key in sys.stdin:
        value = next(sys.stdin)
        {before}
        sys.stdout.write("forward\\n" + key + value)
        {after}
    """


def forwarding(before="", after=""):
    return FORWARD.format(before=before, after=after)


@pytest.mark.parametrize("after", ["", "sys.stdout.flush()"], ids=["buffered", "flushed"])
def test_records_go_through_one_process_in_order(script, after):
    operator = script(forwarding(after=after))
    assert list(operator.run(iter(RECORDS))) == RECORDS
    assert operator.lives == 1


def test_filtered_records_are_gone_and_keys_may_change(tmp_path):
    program = r'{ getline v; n = substr($2, 11); if (n % 2) print "filter"; else print "forward\nkey: k" n "\n" v }'
    found = list(Operator(["awk", program], tmp_path).run(RECORDS))
    assert found == [(f"k{number}", f"value {number}") for number in range(0, 5000, 2)]


def test_no_records_no_process(tmp_path):
    operator = Operator(["/nowhere"], tmp_path)
    assert list(operator.run([])) == []
    assert operator.lives == 0


def test_more_than_any_pipe_holds_in_both_directions(script):
    large = [(str(number), "x" * 10_000_000) for number in range(3)]
    assert list(script(forwarding()).run(large)) == large


def test_a_command_that_reads_all_before_it_answers(script):
    operator = script("""
        lines = sys.stdin.readlines()
        for key, value in zip(lines[::2], lines[1::2]):
            sys.stdout.write("forward\\n" + key + value)
        """)
    assert list(operator.run(RECORDS)) == RECORDS


def test_one_that_dies_now_and_then_is_started_again_and_nothing_is_lost(script):
    body = forwarding("n = globals().get('n', 0) + 1", "if n == 700: sys.stdout.flush(); os.kill(os.getpid(), 9)")
    operator = script(body)
    assert list(operator.run(RECORDS)) == RECORDS
    assert operator.lives >= 7


def test_one_that_dies_before_its_answers_get_out(script, tmp_path):
    body = forwarding(f"""
        if not os.path.exists({str(tmp_path / "died")!r}) and "value 77\\n" in value:
            open({str(tmp_path / "died")!r}, "w").close()
            os.kill(os.getpid(), 9)""")
    operator = script(body)
    assert list(operator.run(RECORDS)) == RECORDS
    assert operator.lives > 1


def test_a_record_that_kills_it_each_time_is_found(script):
    operator = script(forwarding("if 'value 4321' in value: sys.exit('that is too much')"))
    with pytest.raises(CommandFailed) as failed:
        list(operator.run(RECORDS))
    told = str(failed.value)
    assert "1-command" in told
    assert "input.txt:4321: 'value 4321'" in told
    assert "exit code 1" in told
    assert "that is too much" in told


def test_records_before_the_one_that_kills_it_have_come_out(script):
    found = script(forwarding("if 'value 4321' in value: sys.exit(3)")).run(RECORDS)
    assert [next(found) for _ in range(4321)] == RECORDS[:4321]


def test_a_command_that_hangs_is_ended(tmp_path):
    operator = Operator(["sleep", "1000"], tmp_path, timeout_s=0.1, attempts_max=2)
    with pytest.raises(CommandFailed, match=r"has hung \(no answer in 0.1 s\) 2 times at input.txt:0: 'value 0'"):
        list(operator.run(RECORDS[:10]))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("forwards", "answered 'forwards' to input.txt:2: 'value 2'"),
        ("forward\\nvalue: 1\\nkey: 2", r"answered 'forward\nvalue: 1\nkey: 2' to input.txt:2"),
        ("", "answered '' to input.txt:2: 'value 2'"),
    ],
)
def test_a_bad_answer_is_told_with_its_record(script, answer, told):
    operator = script(forwarding(f"if 'value 2\\n' in value: print('{answer}'); continue"))
    with pytest.raises(CommandFailed) as failed:
        list(operator.run(RECORDS))
    assert told in str(failed.value)


def test_more_answers_than_records(script):
    operator = script(forwarding(after="print('filter')"))
    with pytest.raises(CommandFailed, match="asked nothing more"):
        list(operator.run(RECORDS[:1]))


def test_line_breaks_can_not_be_asked(tmp_path):
    with pytest.raises(BadRecord, match=r"^b: .*line break"):
        list(Operator(["cat"], tmp_path).run([("a", "1"), ("b", "1\n2")]))


def test_a_command_that_is_not_there(tmp_path):
    with pytest.raises(NotExecutable, match=r"1-command: \./nowhere"):
        list(Operator(["./nowhere"], tmp_path, label="1-command").run(RECORDS))


def test_nothing_is_left_of_a_command_that_is_not_read_to_its_end(script, tmp_path):
    operator = script(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n" + textwrap.dedent(forwarding()))
    found = operator.run(RECORDS)
    next(found)
    pid = int((tmp_path / "pid").read_text())
    found.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(ONE_LINE, ONE_LINE))), st.integers(0, 60))
def test_answers_are_read_wherever_they_are_cut(answers, cut):
    text = b"".join(b"filter\n" if answer is None else b"forward\n" + asked([answer]) for answer in answers)
    found, length = parse(text[: len(text) - cut] if cut < len(text) else b"")
    rest, all_of_it = parse(text[length:])
    assert found + rest == answers
    assert length + all_of_it == len(text)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(ONE_LINE, ONE_LINE), max_size=50))
def test_whatever_is_one_line_goes_through(records):
    program = r'while (<STDIN>) { print "forward\n", $_, scalar <STDIN> }'
    assert list(Operator(["perl", "-e", program], "/").run(records)) == records


def test_what_came_before_a_bad_answer_counts():
    with pytest.raises(BadAnswer) as bad:
        parse(b"filter\nforward\nkey: a\nvalue: b\nnonsense\n")
    assert bad.value.answers == [None, ("a", "b")]


HANGS = """#!/bin/sh
sleep 1000 &
echo $! > child.draft && mv child.draft child
wait
"""


@pytest.fixture
def wrapped(tmp_path):
    """A command that only starts another one, and waits for it; in its folder."""
    (tmp_path / "wrapper.sh").write_text(HANGS)
    (tmp_path / "wrapper.sh").chmod(0o755)
    return tmp_path


def ends(pid):
    """Whether it is over, or so soon."""
    try:
        psutil.Process(pid).wait(10)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def test_what_a_command_has_started_ends_with_it(wrapped):
    operator = Operator(["./wrapper.sh"], wrapped, timeout_s=1, attempts_max=1)
    with pytest.raises(CommandFailed, match="has hung"):
        list(operator.run(RECORDS[:1]))
    assert ends(int((wrapped / "child").read_text()))


def test_what_a_command_has_started_ends_with_who_runs_it(wrapped):
    """A Python worker that is killed, say."""
    code = "from tenure.jobs.pipelines.command import Operator; list(Operator(['./wrapper.sh'], '.').run([('a', 'b')]))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=wrapped) as worker:
        deadline_s = time.monotonic() + 60
        while not (wrapped / "child").exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        worker.kill()
    assert ends(int((wrapped / "child").read_text()))
