"""Declared data pipelines: what they are, checked before anything runs, and what they mean in plain Python.

Nothing here needs Spark; `tenure.jobs.spark` runs what is declared here.
"""

from tenure.jobs.pipelines.autoscale import Autoscale
from tenure.jobs.pipelines.sinks import Sink
from tenure.jobs.pipelines.sources import Csv, Json, Parquet, Text, TopicSource
from tenure.jobs.pipelines.spec import Pipeline, load_pipeline
from tenure.jobs.pipelines.stages import (
    Aggregate,
    Command,
    Filter,
    FlatMap,
    Grep,
    Join,
    KeyBy,
    Map,
    Replace,
    Table,
)

__all__ = [
    "Aggregate",
    "Autoscale",
    "Command",
    "Csv",
    "Filter",
    "FlatMap",
    "Grep",
    "Join",
    "Json",
    "KeyBy",
    "Map",
    "Parquet",
    "Pipeline",
    "Replace",
    "Sink",
    "Table",
    "Text",
    "TopicSource",
    "load_pipeline",
]
