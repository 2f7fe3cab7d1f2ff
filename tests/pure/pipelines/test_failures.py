"""Spark's failures as one sentence, the cause first."""

import pytest

from tenure.jobs.pipelines.errors import BadRecord, CommandFailed, MissingInput, PipelineFailed
from tenure.jobs.spark.failures import is_final, told

COMPLAINT = """An error occurred while calling o87.text.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
Caused by: org.apache.spark.E: [USER_RAISED_EXCEPTION] TENURE-BAD-RECORD in:7: no number: x SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2800)
"""
IN_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 12, in main
  File "/home/ann/words.py", line 9, in words
KeyError: 'who'
"""
OURS = "…\ntenure.jobs.pipelines.errors.CommandFailed: stage 1-command: ./a died 3 times at in:0: 'x'\n…"


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (COMPLAINT, BadRecord, "in:7: no number: x"),
        (IN_PYTHON, PipelineFailed, "KeyError: 'who' (in words, /home/ann/words.py:9)"),
        (OURS, CommandFailed, "stage 1-command: ./a died 3 times at in:0: 'x'"),
        (
            "An error …\n: java.io.IOException: x\nCaused by: java.net.E: refused\n",
            PipelineFailed,
            "java.net.E: refused",
        ),
        (
            "An error …\n: java.io.IOException: no space left\n\tat x\n",
            PipelineFailed,
            "java.io.IOException: no space left",
        ),
        ("\nsomething else\nmore", PipelineFailed, "RuntimeError: something else"),
    ],
)
def test_the_cause_comes_first(text, kind, sentence):
    error = told(RuntimeError(text))
    assert (type(error), str(error)) == (kind, sentence)
    assert "something else" in text or str(error.__cause__) == text


def test_what_trying_again_would_not_change():
    assert is_final(MissingInput("x"))
    assert is_final(BadRecord("x"))
    assert not is_final(PipelineFailed("x"))
    assert not is_final(CommandFailed("x"))
    assert told(original := MissingInput("x")) is original
