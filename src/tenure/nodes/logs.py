"""A node's log: for people on a terminal, or one JSON object a line. To standard error, always."""

import logging
import sys
from contextlib import suppress
from typing import Any

import structlog

__all__ = ["set_up_logs"]


def set_up_logs(*, json: bool, level: str = "info", stream: Any = None) -> None:
    """Send structlog's and the standard library's records the same way, for this whole process."""
    stream = stream or sys.stderr
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if json else "%H:%M:%S", utc=json),
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if json
        else structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0)
    )
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, structlog.processors.dict_tracebacks if json else _as_it_is, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(_Patient(stream)),  # type: ignore[arg-type]  # it only writes
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    if level != "debug":
        logging.getLogger("hazelcast").setLevel(logging.CRITICAL)  # what matters of it, the adapter says


class _Patient:
    """A log on a full disk, or into a pipe that nobody reads any more, loses its lines: no turn fails of that, and no
    node ends of it. (The standard library's handlers do the same.)"""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _as_it_is(_logger: Any, _method: str, event: Any) -> Any:
    return event
