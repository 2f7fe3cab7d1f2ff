"""Whatever a job may hold, as a line of JSON."""

from datetime import datetime
from typing import Any

__all__ = ["as_json"]


def as_json(value: Any) -> str:
    """One line. What JSON has no word for is told by msgspec (bytes: base64; moments: ISO)."""
    import msgspec

    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, msgspec.EncodeError):
        return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    """Maps with keys that JSON can't have get the keys' texts."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, str | int | float | bool | bytes | datetime):
        return value
    return str(value)
