#!/usr/bin/env python3
"""The same pipeline as `pipeline.toml`, declared in Python.

python3 examples/hello/hello.py
"""

from pathlib import Path

from tenure.jobs.pipelines import Grep, Pipeline, Replace, Sink, Text
from tenure.jobs.spark import run

pipeline = Pipeline(
    name="hello",
    source=Text("input.txt"),
    stages=[Grep("hello", tasks=3), Replace(("hello", "hi"), tasks=2)],
    sink=Sink(text="out", console=True, overwrite=True),
    folder=str(Path(__file__).parent),
)

if __name__ == "__main__":
    run(pipeline)
