"""What happened when, by whom: for people, and for comparing two runs of one seed."""

import trio

__all__ = ["Trace"]

Line = tuple[float, str, str]


class Trace:
    """Lines in the order in which they were told. `detailed`: single grid writes too."""

    def __init__(self, *, detailed: bool = False) -> None:
        self.detailed = detailed
        self.lines: list[Line] = []

    def tell(self, who: str, what: str) -> None:
        """One thing that happened."""
        self.lines.append((trio.current_time(), who, what))

    def text(self, last: int | None = None) -> str:
        """Readable, the newest `last` lines of it."""
        lines = self.lines if last is None else self.lines[-last:]
        cut = len(self.lines) - len(lines)
        head = [f"… {cut} earlier lines; all of them with --trace"] if cut else []
        return "\n".join(head + [f"{time:9.3f}  {who:<12} {what}" for time, who, what in lines])
