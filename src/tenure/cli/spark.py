"""`tenure spark`: pipelines on Spark."""

from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from tenure.cli.ends import Exit, Usage
from tenure.cli.options import USUAL_OUTPUT, Output

__all__ = ["app"]

app = cyclopts.App(name="spark", help="Data pipelines on Spark.", help_format="plaintext")


@app.command
def run(
    pipeline: Path,
    /,
    *,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    master: str | None = None,
    output: Output = USUAL_OUTPUT,
) -> int:
    """Run a pipeline, and wait until it has ended. What is wrong with it is said before Spark starts.

    Parameters
    ----------
    pipeline
        The TOML file that declares it.
    overwrite
        Replace output that is there already, once the new one is complete.
    master
        Where Spark runs, instead of what the file says: local[*], spark://host:port, yarn, k8s://….
    """
    from tenure.cli.spark_run import run_and_watch
    from tenure.jobs.pipelines import load_pipeline
    from tenure.jobs.pipelines.check import check
    from tenure.jobs.spark.java import find_java_home, need_pyspark

    if pipeline.is_dir():
        raise Usage(f"{pipeline} is a folder: name the TOML file in it.")
    declared = load_pipeline(pipeline).changed(master=master, overwrite=overwrite or None)
    check(declared)
    need_pyspark()
    find_java_home()
    return run_and_watch(declared, as_json=output.json) or Exit.DONE
