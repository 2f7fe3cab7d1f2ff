"""The application, in its second version: accounts have another shape. Its nodes know a second format, too."""

import time
from typing import Any

from zipped import ZIPPED  # beside this file

import tenure
from tenure.scheduler.formats import add_format

add_format(ZIPPED)


@tenure.job("upgraded-account", application="books", version=2)
class Account(tenure.Job):
    """Keeps what it knows of its messages in one place."""

    last: int = 0
    disordered: int = 0
    taken_ms: int = 0
    longest_ms: int = 0
    upgraded_from: int = 0

    @staticmethod
    def upgrade(state: dict[str, Any], version: int) -> dict[str, Any]:
        return {**state, "upgraded_from": version}

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
        n = message["n"]
        self.disordered += n != self.last + 1
        self.last = n
        now_ms = time.time_ns() // 1_000_000
        if self.taken_ms:
            self.longest_ms = max(self.longest_ms, now_ms - self.taken_ms)
        self.taken_ms = now_ms
        if n % 5 == 0:
            ctx.send(f"sink-{n // 5 % 3}", {"n": n // 5})
        return 2


@tenure.job("upgraded-sink", application="books")
class Sink(tenure.Job):
    total: int = 0
    count: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> None:
        self.total += message["n"]
        self.count += 1
