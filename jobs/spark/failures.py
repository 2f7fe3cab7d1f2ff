"""Spark's failures as one sentence with the cause first."""

import re

from tenure.jobs.pipelines.errors import BadRecord, PipelineFailed
from tenure.jobs.spark.columns import COMPLAINT
from tenure.scheduler.errors import Mistake, TenureError

__all__ = ["is_final", "told"]

OURS = re.compile(r"tenure\.jobs\.pipelines\.errors\.(\w+): (.*)")
COMPLAINED = re.compile(re.escape(COMPLAINT) + r"(.*)")
PYTHON = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit)): (.*)$", re.MULTILINE)
FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
NOT_THE_USERS = ("/pyspark/", "/tenure/jobs/", "/pyspark.zip/")
CAUSED = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
RAISED = re.compile(r"^: (.*)$", re.MULTILINE)
STATE = re.compile(r" SQLSTATE: \w{5}\s*$")
"""Spark adds it to each of our complaints."""


def told(error: Exception) -> Exception:
    """The error to report: our own as they are, Spark's by their cause, with the whole text below."""
    if isinstance(error, TenureError):
        return error
    text = str(error)
    if complaint := COMPLAINED.search(text):
        return _because(BadRecord(STATE.sub("", complaint[1].strip())), error)
    if ours := OURS.search(text):
        from tenure.jobs.pipelines import errors

        kind = getattr(errors, ours[1], PipelineFailed)
        return _because(kind(ours[2].strip()), error)
    return _because(PipelineFailed(_sentence(error, text)), error)


def is_final(error: Exception) -> bool:
    """Whether another attempt would end in the same way: the declaration is wrong, or the data."""
    return isinstance(error, Mistake | BadRecord)


def _because(told: Exception, cause: Exception) -> Exception:
    told.__cause__ = cause
    return told


def _sentence(error: Exception, text: str) -> str:
    if "Traceback (most recent call last)" in text and (raised := PYTHON.findall(text)):
        kind, what = raised[-1]
        where = [frame for frame in FRAME.findall(text) if not any(part in frame[0] for part in NOT_THE_USERS)]
        place = f" (in {where[-1][2]}, {where[-1][0]}:{where[-1][1]})" if where else ""
        return f"{kind}: {what}{place}"
    if caused := CAUSED.findall(text):
        return str(caused[-1])
    if raised := RAISED.findall(text):  # by Java, as Py4J tells it
        return str(raised[0])
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"{type(error).__name__}: {first}"
