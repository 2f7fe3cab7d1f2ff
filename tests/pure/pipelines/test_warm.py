"""Warm drivers: one for each setting, whoever starts them."""

import threading

import pytest

from tenure.jobs.spark import warm, warm_doorman
from tenure.jobs.spark.warm import connect, has_driver, held, home_of, listen


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
