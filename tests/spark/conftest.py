"""One Spark session for all tests that run in this process. Without Java 17 or newer they are skipped, and say why."""

from pathlib import Path

import pytest

from tenure.jobs.spark.java import find_java_home, need_pyspark
from tenure.scheduler.errors import TenureError

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For all Javas of these tests: they live for seconds, so compiling well does not pay."""


def missing():
    try:
        need_pyspark()
        find_java_home()
    except TenureError as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items):
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    why = missing() if ours else None
    for item in ours:
        item.add_marker(pytest.mark.spark)
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session", autouse=True)
def _quick_starts():
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory, _quick_starts):
    from tenure.jobs.spark.session import open_session

    with open_session("local[2]", SMALL, "tests", tmp_path_factory.mktemp("spark")) as spark:
        yield spark
