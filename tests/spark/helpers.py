"""One stage on Spark, beside the same stage in plain Python."""

from pathlib import Path

from tenure.jobs.pipelines import Pipeline, Sink, Text, reference
from tenure.jobs.pipelines.errors import BadRecord
from tenure.jobs.spark.failures import told
from tenure.jobs.spark.stages import Context, apply

FOLDER = Path(__file__).parent


def pipeline(stages=(), source=None, folder=FOLDER, **options):
    source = source or Text("input.txt")
    return Pipeline(
        name="test", source=source, stages=list(stages), sink=Sink(console=True), folder=str(folder), **options
    )


def frame(spark, records):
    return spark.createDataFrame(records, "key string, value string")


def translated(spark, stages, records, folder=FOLDER, **options):
    declared = pipeline(stages, folder=folder, **options)
    found = records
    for label, stage in zip(declared.labels, declared.stages, strict=True):
        found = apply(stage, found, Context(spark, declared, label))
    return found


def plan_of(spark, stages):
    """How Spark would go about it; on records that it does not know at once."""
    records = spark.read.schema("key string, value string").json(str(FOLDER))
    return translated(spark, stages, records)._jdf.queryExecution().executedPlan().toString()


def on_spark(spark, stages, records, folder=FOLDER, **options):
    """The records after the stages; a `BadRecord`, if that is what they end with."""
    found = translated(spark, stages, frame(spark, records), folder, **options)
    try:
        return sorted((row["key"], row["value"]) for row in found.select("key", "value").collect())
    except Exception as error:
        if isinstance(why := told(error), BadRecord):
            return why
        raise


def in_python(stages, records, folder=FOLDER):
    try:
        for stage in stages:
            records = reference.apply(stage, records, folder)
        return sorted(records)
    except BadRecord as error:
        return error


def same(spark, stages, records, **options):
    """Asserts that both agree, on the result or on there being a bad record."""
    expected, found = in_python(stages, records), on_spark(spark, stages, records, **options)
    if isinstance(expected, BadRecord):
        assert isinstance(found, BadRecord), f"Spark gave {found}, but {expected}"
    else:
        assert found == expected
    return found
