"""The function of the pipeline beside it."""

import json


def known(key: str, value: str) -> bool:
    """Whether the table has the user."""
    return json.loads(value)["who"] is not None
