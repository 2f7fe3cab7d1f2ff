"""Picks, numbers, times and JSON as columns of Spark: the same meaning as in plain Python, without leaving the JVM."""

import re
from typing import TYPE_CHECKING

from tenure.jobs.pipelines.amounts import NUMBER, TIME
from tenure.jobs.pipelines.picks import Pick

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["as_object", "complain", "is_object", "java_pattern", "moment_column", "number_column", "number_text"]
__all__ += ["object_with", "pick_column", "refused", "time_column"]

COMPLAINT = "TENURE-BAD-RECORD "
"""Marks our own words in an error of Spark."""
SPACES = " \t\n\r"
SECOND = "here ends the value 5d1b0c3e"


def complain(what: "Column") -> "Column":
    """Ends the run if it is evaluated, with the record's key and what is wrong."""
    from pyspark.sql import functions as F

    return F.raise_error(F.concat(F.lit(COMPLAINT), F.col("key"), F.lit(": "), what))


def refused(wanted: str, found: "Column") -> "Column":
    """As `complain`, with the text that is no such thing."""
    from pyspark.sql import functions as F

    return complain(F.concat(F.lit(f"no {wanted}: "), F.substring(F.coalesce(found, F.lit("")), 1, 80)))


def java_pattern(pattern: str) -> str:
    """A pattern of Python's for Java: only LF ends a line there too, and named groups are written as there."""
    return "(?d)" + re.sub(r"\(\?P=(\w+)\)", r"\\k<\1>", pattern.replace("(?P<", "(?<"))


def pick_column(pick: Pick) -> "Column":
    """What is picked, without a function. A record that has no such thing ends the run."""
    from pyspark.sql import functions as F

    value = F.col("value")
    if pick.kind in ("value", "key"):
        return F.col(pick.kind)
    if pick.kind == "field":
        path = "$" + "".join(f"['{name}']" for name in pick.of.split("."))
        found = F.get_json_object(value, path)
    else:
        pattern = java_pattern(pick.of)
        found = F.when(value.rlike(pattern), F.regexp_extract(value, pattern, 1))
    there_is_none = F.concat(F.lit(f"there is no {pick} in "), F.substring(value, 1, 80))
    return F.coalesce(found, complain(there_is_none))


def number_column(text: "Column") -> "Column":
    """The exact number that a text is."""
    from pyspark.sql import functions as F

    text = F.trim(text)
    return F.when(text.rlike(f"^{NUMBER}\\z"), text.cast("decimal(38,18)")).otherwise(refused("number", text))


def number_text(number: "Column") -> "Column":
    """Without needless zeros. (As decimals have 18 digits behind it, there always is a point.)"""
    from pyspark.sql import functions as F

    return F.rtrim(F.rtrim(number.cast("string"), F.lit("0")), F.lit("."))


def time_column(text: "Column") -> "Column":
    """Microseconds since 1970."""
    from pyspark.sql import functions as F

    text = F.trim(text)
    number = F.floor(text.cast("decimal(38,18)") * F.lit(10**6)).cast("bigint")
    moment = F.unix_micros(text.try_cast("timestamp"))
    found = F.when(text.rlike(f"^{NUMBER}\\z"), number).when(text.rlike(f"^{TIME}\\z"), moment)
    return F.coalesce(found, refused("time (ISO 8601, or seconds since 1970)", text))


def moment_column(at_us: "Column") -> "Column":
    """ISO 8601, UTC; a fraction only if there is one."""
    from pyspark.sql import functions as F

    moment, whole = F.timestamp_micros(at_us), at_us % 10**6 == 0
    short, long = "yyyy-MM-dd'T'HH:mm:ss'Z'", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
    return F.when(whole, F.date_format(moment, short)).otherwise(F.date_format(moment, long))


def is_object(value: "Column") -> "Column":
    """Whether it is the text of a JSON object, and nothing behind it."""
    from pyspark.sql import functions as F

    # Spark passes over what comes behind a value; but it does not pass over the second of a list.
    parsed = F.try_parse_json(F.concat(F.lit("["), value, F.lit(f',"{SECOND}"]')))
    is_alone = F.coalesce(F.try_variant_get(parsed, "$[1]", "string") == SECOND, F.lit(False))
    return F.startswith(F.ltrim(value, F.lit(SPACES)), F.lit("{")) & is_alone


def as_object(value: "Column") -> "Column":
    """The value, if it is a JSON object; else `{"value": …}`."""
    from pyspark.sql import functions as F

    return F.when(is_object(value), F.btrim(value, F.lit(SPACES))).otherwise(F.to_json(F.struct(value.alias("value"))))


def object_with(value: "Column", name: str, row: "Column") -> "Column":
    """The value, as a JSON object with one more field."""
    from pyspark.sql import functions as F

    from tenure.jobs.pipelines.picks import json_text

    whole = as_object(value)
    inside = whole.substr(F.lit(2), F.length(whole) - 2)
    comma = F.when(F.btrim(inside, F.lit(SPACES)) == "", "").otherwise(",")
    return F.concat(F.lit("{"), inside, comma, F.lit(json_text(name) + ":"), row, F.lit("}"))
