from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.jobs.pipelines import Aggregate, Grep, Pipeline, Replace, Sink, Text
from tenure.jobs.pipelines.autoscale import Autoscale, Scaler
from tenure.jobs.pipelines.errors import BadOption
from tenure.jobs.spark.scaling import Scaling, allocation

MARKS = Autoscale(low=10, high=100, tasks_max=4)


def followed(rates, tasks=1, every_s=1.0):
    scaler = Scaler(MARKS, tasks, 0.0)
    return [scaler.follow(rate, number * every_s) for number, rate in enumerate(rates, 1)]


def test_more_tasks_above_the_high_mark_one_after_each_settling_time():
    assert followed([1000] * 21) == [1] * 4 + [2] * 5 + [3] * 5 + [4] * 7


def test_fewer_below_the_low_mark():
    assert followed([0] * 21, tasks=4) == [4] * 4 + [3] * 5 + [2] * 5 + [1] * 7


def test_no_change_in_between():
    assert followed([90] * 50, tasks=2) == [2] * 50


def test_a_rate_that_fits_more_tasks_settles_there():
    assert followed([250] * 50)[-1] == 3
    assert followed([250] * 50, tasks=4)[-1] == 4


@settings(deadline=None)
@given(st.lists(st.floats(0, 10**6), max_size=100), st.integers(0, 10))
def test_never_more_or_fewer_than_allowed_nor_sooner(rates, tasks):
    found = [max(1, min(4, tasks)), *followed(rates, tasks)]
    assert all(1 <= number <= 4 for number in found)
    changes = [at for at, (before, after) in enumerate(pairwise(found)) if before != after]
    assert all(abs(found[at + 1] - found[at]) == 1 for at in changes)
    assert all(later - sooner >= 5 for sooner, later in pairwise(changes))


@pytest.mark.parametrize(
    ("low", "high", "tasks_min", "tasks_max"), [(5, 5, 1, 2), (9, 5, 1, 2), (-1, 5, 1, 2), (1, 5, 0, 2), (1, 5, 3, 2)]
)
def test_marks_that_can_not_be_meant(low, high, tasks_min, tasks_max):
    with pytest.raises(BadOption, match="autoscale needs"):
        Autoscale(low=low, high=high, tasks_min=tasks_min, tasks_max=tasks_max)


def stream(master="local[2]", autoscale=MARKS):
    stages = [Grep("a", tasks=1), Replace(("a", "b")), Aggregate("count", tasks=3), Grep("b", tasks=2)]
    source, sink = Text("in", stream=True), Sink(text="out")
    return Pipeline(name="p", source=source, stages=stages, sink=sink, master=master, autoscale=autoscale)


def test_stages_that_say_tasks_follow_but_aggregates_keep_theirs():
    scaling = Scaling(stream(), now_s=0.0)
    tasks = []
    for second in range(1, 12):
        stages = scaling.stages(records=1000, now_s=float(second))
        tasks.append([stage.tasks for stage in stages])
    assert tasks[0] == [2, None, 3, 2], "they begin with as many as the widest of them says"
    assert tasks[4] == [3, None, 3, 3]
    assert tasks[-1] == [4, None, 3, 4]
    assert scaling.tasks == 4
    assert Scaling(stream(autoscale=None), 0.0).stages(1000, 9.0) == stream().stages


def test_on_a_cluster_executors_follow():
    assert allocation(stream()) == {}
    assert allocation(stream("spark://h:7077", autoscale=None)) == {}
    found = allocation(stream("spark://h:7077"))
    assert found["spark.dynamicAllocation.enabled"] == "true"
    assert (found["spark.dynamicAllocation.minExecutors"], found["spark.dynamicAllocation.maxExecutors"]) == ("1", "4")
    assert found["spark.dynamicAllocation.executorIdleTimeout"] == "5s"
    assert found["spark.dynamicAllocation.shuffleTracking.timeout"] == "50s"


def test_it_is_for_streams():
    with pytest.raises(BadOption, match="autoscale is for streams"):
        Pipeline(name="p", source=Text("in"), sink=Sink(text="out"), autoscale=MARKS)
