"""How a command ends: exit codes, and errors in one sentence with the next step."""

import enum
import json
import sys
from collections.abc import Iterator
from types import ModuleType

from tenure.cli.show import say

__all__ = ["Exit", "Failed", "Usage", "explain", "first_error", "was_interrupted"]


class Exit(enum.IntEnum):
    """What the shell gets."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    HUNG = 4
    """Of `tenure node`: its watchdog has ended it. Start it again; others have taken over."""


class Failed(Exception):
    """The command did what it could, and that was not all; the text says what to do."""

    code = Exit.FAILED


class Usage(Failed):
    """The command was not called right."""

    code = Exit.USAGE


class Unreachable(Failed):
    """Nobody answers."""

    code = Exit.UNREACHABLE


def explain(error: BaseException, *, as_json: bool) -> int:
    """Print the error in a sentence, and return the exit code."""
    error = first_error(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else (Exit.DONE if error.code is None else Exit.FAILED)
    code, sentence = _told(error)
    if sentence and as_json:
        say(json.dumps({"error": type(error).__name__, "what": sentence, "exit_code": int(code)}))
    elif sentence:
        say(f"tenure: {sentence}")
    return code


def first_error(error: BaseException) -> BaseException:
    """The one that matters of a group: the first that is not a mere consequence."""
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if not isinstance(leaf, KeyboardInterrupt)), leaves[0])


def was_interrupted(error: BaseException) -> bool:
    """By Ctrl-C; or by a signal that has cancelled what trio runs (see `giving_up`)."""
    trio = sys.modules.get("trio")
    return isinstance(first_error(error), (KeyboardInterrupt, *((trio.Cancelled,) if trio is not None else ())))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _told(error: BaseException) -> tuple[Exit, str]:
    if isinstance(error, Failed):
        return error.code, str(error)
    if isinstance(error, KeyboardInterrupt):
        return Exit.FAILED, "interrupted."
    if isinstance(error, BrokenPipeError):
        return Exit.FAILED, ""  # whoever read what we print has read enough
    if (usage := _usage(error)) is not None:
        return Exit.USAGE, usage
    known = sys.modules.get("tenure.scheduler.errors")  # not imported yet: then none of them was raised
    if known is not None and isinstance(error, known.TenureError):
        return _code_of(error, known), _sentence(error)
    port = sys.modules.get("tenure.scheduler.grid.port")
    if port is not None and isinstance(error, port.GridError):
        return Exit.UNREACHABLE, f"The members do not answer: {str(error).rstrip('.')}. See `tenure doctor`."
    if isinstance(error, OSError):
        return Exit.FAILED, _of_the_system(error)
    name = type(error).__name__
    return Exit.FAILED, f"{name}: {error}. This should not happen: run it with --debug, and report what that shows."


def _of_the_system(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return f"{str(error).rstrip('.')}. See `tenure doctor` for what this machine lacks."
    return f"{error.filename}: {error.strerror}. Name another path, or see to it that this one may be used."


def _usage(error: BaseException) -> str | None:
    import cyclopts

    if not isinstance(error, cyclopts.CycloptsError):
        return None
    text = " ".join(str(error).split()).partition(" Available commands:")[0].rstrip(".")
    return f"{text}{'' if text.endswith('?') else '.'} See `tenure {_command(error)}--help`."


def _command(error: BaseException) -> str:
    chain = getattr(error, "command_chain", None) or ()
    return "".join(f"{part} " for part in chain)


NO_USAGE = ("DuplicateJob", "NotRestorable", "PickledJobsRefused", "StateTooLarge", "TurnTooLarge")
"""The command was right; what there is stands against it."""


def _code_of(error: BaseException, known: ModuleType) -> Exit:
    name = type(error).__name__
    if name in ("CannotConnect", "GridGone", "NotDone"):
        return Exit.UNREACHABLE
    if isinstance(error, known.Mistake) and name not in NO_USAGE:
        return Exit.USAGE
    return Exit.FAILED


NEXT_STEPS = {
    "UnknownJob": "See `tenure jobs` for those there are.",
    "JobRemoved": "Schedule it again with `tenure schedule`.",
    "JobFailed": "See `tenure describe`: a job that has failed goes on after `tenure retry`.",
    "JobPaused": "Let it go on with `tenure resume`.",
    "JobStuck": "See `tenure describe` for the reason.",
    "NotDone": "See `tenure doctor` for whether members and nodes are there.",
    "Backlogged": "See `tenure partitions` for where it waits, and publish again (with ids, to be safe from doubles).",
    "PartitionLost": "See `tenure partitions`; restore a snapshot.",
    "WrongType": "What it takes stands in the job type's annotations, in the application.",
    "TooLarge": "Send less, or store it elsewhere and send where it is.",
    "UnknownJobType": "Name a type that the nodes know (`tenure nodes`), or the application with --app.",
}


def _sentence(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    step = next((NEXT_STEPS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in NEXT_STEPS), "")
    return text if not step else f"{text.rstrip('.')}. {step}"
