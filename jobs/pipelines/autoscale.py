"""How many tasks a stream's stages have, by how fast records come: more above the high mark, fewer below the low one.

records a second and task:   0 ────── low ─────────────── high ──────►
                              fewer        as they are        more        (one at a time, after a settling time)
"""

from msgspec import Struct

from tenure.jobs.pipelines.errors import BadOption

__all__ = ["Autoscale", "Scaler"]


class Autoscale(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """For the stages of a stream that remember nothing and say `tasks`, which is what they begin with."""

    low: float
    """With fewer records a second and task, there is one task less."""
    high: float
    """With more, there is one more."""
    tasks_max: int
    tasks_min: int = 1
    settle_s: float = 5.0
    """Nothing is changed for so long after a change."""

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high:
            raise BadOption(f"autoscale needs 0 <= low < high, not {self.low:g} and {self.high:g}")
        if not 1 <= self.tasks_min <= self.tasks_max:
            raise BadOption(f"autoscale needs 1 <= tasks_min <= tasks_max, not {self.tasks_min} and {self.tasks_max}")
        if self.settle_s < 0:
            raise BadOption(f"settle_s = {self.settle_s:g} can't be negative")


class Scaler:
    """Follows the rate of one stream."""

    def __init__(self, marks: Autoscale, tasks: int, now_s: float) -> None:
        self._marks = marks
        self.tasks = max(marks.tasks_min, min(marks.tasks_max, tasks))
        """So many there are to be now."""
        self._changed_s = now_s

    def follow(self, records_per_s: float, now_s: float) -> int:
        """How many tasks there are to be, at this rate."""
        marks = self._marks
        if now_s - self._changed_s < marks.settle_s:
            return self.tasks
        per_task = records_per_s / self.tasks
        step = 1 if per_task > marks.high else -1 if per_task < marks.low else 0
        wanted = max(marks.tasks_min, min(marks.tasks_max, self.tasks + step))
        if wanted != self.tasks:
            self.tasks, self._changed_s = wanted, now_s
        return self.tasks
