"""Warm drivers: one for each setting, whoever starts them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tenure.jobs.reporting import Reporter
from tenure.jobs.spark import warm, warm_doorman
from tenure.jobs.spark.current import current_reporter, reporting
from tenure.jobs.spark.warm import connect, has_driver, held, home_of, listen
from tenure.scheduler.activities_port import Run

RUN = Run(tag="t.1", job="j", generation=0, activity="run-1", id="i", attempt=1, kind="spark", work=None)


def test_work_with_the_same_master_and_settings_shares_one(tmp_path):
    def home(**work):
        return home_of(work, tmp_path, {})

    assert home(master="local[2]") == home(master="local[2]", function="a:b", spark={"spark.sql.x": "1"})
    assert home(master="local[2]") != home(master="local[3]")
    assert home(master="local[2]") != home(master="local[2]", spark={"spark.driver.memory": "2g"})
    assert home(pipeline={"master": "local[2]"}) == home(master="local[2]")
    assert home(master="local[2]") != home_of({"master": "local[2]"}, tmp_path, {"JAVA_HOME": "/other"})


def test_of_several_that_are_started_one_stays(tmp_path):
    with held(tmp_path):
        assert held(tmp_path) is None
        assert has_driver(tmp_path)
    assert not has_driver(tmp_path)
    looking = held(tmp_path)
    threading.Timer(0.2, looking.close).start()
    with held(tmp_path, patience_s=10):
        assert has_driver(tmp_path)


def test_a_run_is_brought_to_it(tmp_path):
    deep = tmp_path / ("x" * 200)
    deep.mkdir()
    assert connect(deep) is None
    with listen(deep) as server, connect(deep) as doorman:
        driver, _ = server.accept()
        with driver:
            doorman.sendall(b"hello")
            assert driver.recv(5) == b"hello"
    assert connect(deep) is None


def test_a_driver_that_is_gone_is_not_waited_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(warm_doorman, "NOBODY_S", 0.1)
    assert warm_doorman.main(tmp_path) == 3
    assert f"its log is {tmp_path / 'log'}" in capsys.readouterr().err


@pytest.mark.parametrize("marks", [{}, {"TENURE_RUN": "tag", "TENURE_RUN_FILE": "x", "TENURE_REPORT_FD": "3"}])
def test_it_is_started_without_the_marks_of_a_run(tmp_path, monkeypatch, marks):
    seen = []
    monkeypatch.setattr(warm.subprocess, "run", lambda command, **options: seen.append(options["env"]))
    warm.start(tmp_path / "home", {"master": "local[2]"}, {"A": "b", **marks})
    assert seen == [{"A": "b"}]
    assert (tmp_path / "home" / "work.json").exists()


def test_each_run_has_its_own_reporter():
    reporters = [Reporter(msgspec.structs.replace(RUN, tag=tag)) for tag in ("a.1", "b.1")]
    both, seen = threading.Barrier(2), {}

    def work(reporter):
        with reporting(reporter):
            both.wait(10)
            seen[reporter.run.tag] = current_reporter().run.tag
            both.wait(10)

    threads = [threading.Thread(target=work, args=(reporter,)) for reporter in reporters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == {"a.1": "a.1", "b.1": "b.1"}


def test_threads_of_a_function_share_its_reporter_unless_there_are_several():
    one, other = Reporter(RUN), Reporter(RUN)

    def elsewhere():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(current_reporter).result()

    with reporting(one):
        assert current_reporter() is elsewhere() is one
        with reporting(other):
            assert current_reporter() is other
            with pytest.raises(LookupError, match="several Spark jobs"):
                elsewhere()
        assert current_reporter() is one
    with pytest.raises(LookupError, match="does not work for"):
        current_reporter()
