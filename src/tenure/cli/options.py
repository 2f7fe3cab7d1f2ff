"""Options that commands share."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

__all__ = ["USUAL_CONNECTION", "USUAL_OUTPUT", "Connection", "Limit", "Output", "Seconds", "SecondsOrZero"]


def _some(_type: object, value: float | None) -> None:
    if value is not None and not value > 0:  # nor is it no number
        raise ValueError("Give it more than 0 seconds.")


def _zero_or_some(_type: object, value: float | None) -> None:
    if value is not None and not value >= 0:
        raise ValueError("Give it 0 seconds or more.")


Seconds = Annotated[float, Parameter(validator=_some)]
SecondsOrZero = Annotated[float, Parameter(validator=_zero_or_some)]
"""0 is a time as well."""
Limit = Annotated[float | None, Parameter(show_default=False, validator=_some)]
"""Never, unless it is given."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """How results and errors are shown."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Print JSON: one object a line."""

    debug: Annotated[bool, Parameter(negative="")] = False
    """Show tracebacks."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Connection(Output):
    """Where the cluster is, and how long to wait for it."""

    cluster: Annotated[str | None, Parameter(name=["--cluster", "-c"], env_var="TENURE_CLUSTER")] = None
    """NAME@host:port,host:port. By default the embedded cluster of a node on this machine, or tenure@127.0.0.1:5701."""

    app: Annotated[str | None, Parameter(env_var="TENURE_APP")] = None
    """The application (a Python file or module), to check messages and parameters before they are sent."""

    timeout: Seconds = 30.0
    """Seconds to wait for an answer."""

    connect_timeout: Limit = None
    """Seconds to wait for the first connection: 10, unless it is given. Where all addresses are of this machine and
    nothing listens there, none."""


USUAL_OUTPUT = Output()
USUAL_CONNECTION = Connection()
