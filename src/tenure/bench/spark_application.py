"""What the nodes of `tenure bench spark` run."""

import tenure.jobs.spark.types  # noqa: F401
