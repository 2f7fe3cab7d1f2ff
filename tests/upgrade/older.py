"""An application, in its first version. This file is what nodes run; older versions of Tenure run it, too."""

import time

import tenure


@tenure.job("upgraded-account", application="books")
class Account(tenure.Job):
    """Takes numbered messages, and passes every fifth on."""

    last: int = 0
    disordered: int = 0
    taken_ms: int = 0
    longest_ms: int = 0

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
        return 1


@tenure.job("upgraded-sink", application="books")
class Sink(tenure.Job):
    """Adds up what comes."""

    total: int = 0
    count: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> None:
        self.total += message["n"]
        self.count += 1
