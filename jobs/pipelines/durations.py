"""Spans of time as people write them: "90s", "1 minute", 2.5."""

import re

from tenure.jobs.pipelines.errors import BadOption

__all__ = ["microseconds"]

UNITS_US = {"ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
FORM = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?\s*", re.IGNORECASE
)


def microseconds(span: str | float, option: str) -> int:
    """The span's length. Without a unit it means seconds. Raises `BadOption`."""
    form = FORM.fullmatch(str(span))
    if form is None:
        raise BadOption(f"{option} = {span!r} is no span of time: write seconds, or text like '90s' or '5 minutes'")
    number, unit = form.groups()
    key = "s" if unit is None else "ms" if unit.lower().startswith(("ms", "mil")) else unit[0].lower()
    return round(float(number) * UNITS_US[key])
