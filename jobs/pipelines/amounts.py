"""Numbers and times in texts, as aggregates read and write them: exact, so that the order of adding does not show."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

__all__ = ["NUMBER", "TIME", "moment_text", "number_of", "number_text", "time_us"]

NUMBER = r"[+-]?[0-9]{1,18}([.][0-9]{1,18})?"
"""Up to 18 digits before the point, and after it. Spaces around it don't count."""
TIME = (
    r"((?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})([.][0-9]{1,6})?"
    r"(Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"
)
"""ISO 8601, with T or a space between date and time. Without a zone it is UTC."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACT = Context(prec=60)
_number, _time = re.compile(NUMBER), re.compile(TIME)


def number_of(text: str) -> Decimal | None:
    """None: that is no number."""
    text = text.strip(" ")
    return EXACT.create_decimal(text) if _number.fullmatch(text) else None


def number_text(number: Decimal) -> str:
    """Without needless zeros, and never with an exponent."""
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def time_us(text: str) -> int | None:
    """Microseconds since 1970; None: that is no time."""
    text = text.strip(" ")
    if _number.fullmatch(text):
        return int(EXACT.multiply(EXACT.create_decimal(text), Decimal(10**6)).to_integral_value("ROUND_FLOOR"))
    form = _time.fullmatch(text)
    if form is None:
        return None
    date, clock, fraction, zone = form.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{zone or 'Z'}")
    except ValueError:
        return None
    return (moment - EPOCH) // timedelta(microseconds=1) + int((fraction or ".0")[1:].ljust(6, "0"))


def moment_text(at_us: int) -> str:
    """ISO 8601, UTC; a fraction only if there is one."""
    text = (EPOCH + timedelta(microseconds=at_us)).isoformat()[:19]
    fraction = at_us % 10**6
    return f"{text}.{fraction:06d}Z" if fraction else f"{text}Z"
