"""What is refused before Spark starts, and what can go wrong with a record, each by name."""

from tenure.scheduler.errors import Final, Mistake, TryAgain

__all__ = [
    "BadOption",
    "BadRecord",
    "CommandFailed",
    "MissingInput",
    "MissingJava",
    "MissingSpark",
    "NotExecutable",
    "OutputExists",
    "PipelineFailed",
    "StateInUse",
    "StateMismatch",
    "UnknownOption",
    "UnknownStage",
]


class BadOption(Mistake):
    """An option of a pipeline has a value that can't be meant."""


class UnknownOption(Mistake):
    """A pipeline, source, stage or sink has no option of this name; the text says which one is near."""


class UnknownStage(Mistake):
    """There is no stage (source, sink) of this kind; the text says which one is near."""


class MissingInput(Mistake):
    """A file or folder that the pipeline reads is not there."""


class NotExecutable(Mistake):
    """The command of a stage is not there, or may not be run."""


class OutputExists(Mistake):
    """The place of the output is taken, and the pipeline was not told to replace it."""


class MissingJava(Final):
    """Spark needs Java 17 or newer, and there is none."""


class MissingSpark(Final):
    """The extra `tenure[spark]` is not installed."""


class BadRecord(Final):
    """A stage can't take a record: the text has its key and what is wrong with it."""


class CommandFailed(Final):
    """An external command died again and again, hung, or answered nonsense; the text has the line that caused it."""


class PipelineFailed(Final):
    """A run ended without its result; the text has the cause, and where the whole log is."""


class StateInUse(TryAgain):
    """Another run is at work on the same stream."""


class StateMismatch(Mistake):
    """The state of a stream is of a pipeline with another meaning."""
