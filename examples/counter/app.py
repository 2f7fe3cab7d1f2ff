"""The smallest application: counters that nothing is lost on.

    tenure node examples/counter/app.py
    tenure schedule counter clicks
    tenure ask clicks '{"n": 1}'
"""

import tenure


@tenure.job("counter")
class Counter(tenure.Job):
    total: int = 0

    def on_message(self, ctx: tenure.Context, message: dict[str, int]) -> int:
        self.total += message["n"]
        return self.total
