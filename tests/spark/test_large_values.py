"""Values of ten megabytes in the stages that `test_stages.test_large_values` does not go through."""

import pytest

from tenure.jobs.pipelines import Aggregate, Filter, FlatMap, Join, KeyBy, Table
from tests.spark.helpers import FOLDER, in_python, on_spark

CHARS = 10_000_000
LONG, OTHER = "x" * CHARS + " hello", "y" * CHARS
RECORDS = [("a", LONG), ("b", OTHER), ("a", "z")]
FUNCTIONS = "functions.py"

STAGES = {
    "filter": [Filter(f"{FUNCTIONS}:has_a", tasks=2)],
    "flat_map": [FlatMap(f"{FUNCTIONS}:words", tasks=2)],
    "key_by": [KeyBy({"regex": "(.)$"}, tasks=2)],
    "key_by, large keys": [KeyBy("value"), Aggregate("count", tasks=2)],
    "aggregate by a function": [Aggregate(f"{FUNCTIONS}:longer", tasks=2)],
    "aggregate with a state": [Aggregate(f"{FUNCTIONS}:Sorted", tasks=2)],
    "join": [Join(Table(csv="table.csv", key="id", name="user"))],
}


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_large_values(spark, tmp_path, stages):
    (tmp_path / "functions.py").symlink_to(FOLDER / "functions.py")
    (tmp_path / "table.csv").write_text(f"id,name\na,{'n' * CHARS}\n")
    expected = in_python(stages, RECORDS, tmp_path)
    found = on_spark(spark, stages, RECORDS, tmp_path)
    assert any(len(text) >= CHARS for record in expected for text in record)
    is_same = found == expected
    assert is_same  # not shown: they are long
