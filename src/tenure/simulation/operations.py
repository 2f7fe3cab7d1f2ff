"""What was asked of the cluster and what came of it: a simulation can't pass by doing nothing."""

__all__ = ["Operations"]


class Operations:
    """Counts of operations. One is *calm* if no fault was near it from beginning to end."""

    def __init__(self) -> None:
        self.attempted = self.acknowledged = 0
        self.calm_attempted = self.calm_acknowledged = 0
        self.troubled_until_s = 0.0
        """No operation before this moment is calm."""

    def trouble(self, until_s: float) -> None:
        """A fault happened, whose consequences may be felt until then."""
        self.troubled_until_s = max(self.troubled_until_s, until_s)

    def ended(self, begun_s: float, attempted: int, acknowledged: int) -> None:
        """So many operations that were begun together have ended now."""
        self.attempted += attempted
        self.acknowledged += acknowledged
        if begun_s >= self.troubled_until_s:
            self.calm_attempted += attempted
            self.calm_acknowledged += acknowledged
