"""An external command at work: kept running, started again when it dies.

What is pending when the command dies is given to its next life. If a life ends without a single answer, the next one
gets half as much, and then its end of input: so the record that kills it is found in a few lives.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tenure.jobs.pipelines.errors import CommandFailed, NotExecutable
from tenure.jobs.pipelines.life import Life
from tenure.jobs.pipelines.protocol import BadAnswer
from tenure.jobs.pipelines.records import Record

__all__ = ["Operator"]


class Operator:
    """Gives records to a command and yields its answers."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: str | Path,
        *,
        label: str = "command",
        timeout_s: float = 60.0,
        attempts_max: int = 3,
        before_exec: Callable[[], None] | None = None,
    ) -> None:
        self._arguments, self._folder, self._label = list(arguments), folder, label
        self._timeout_s, self._attempts_max, self._before_exec = timeout_s, attempts_max, before_exec
        self.lives = 0
        """How often the command was started."""

    def run(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that the command forwards. Raises `CommandFailed`, `BadRecord`, `NotExecutable`."""
        source = iter(records)
        pending: deque[Record] = deque()
        limit: int | None = None
        deaths = 0
        while True:
            if not pending:
                pending.extend(islice(source, 1))
                if not pending:
                    return
            life = Life(pending, source if limit is None else iter(()), limit, self._timeout_s)
            self.lives += 1
            answered = 0
            try:
                with life.begun(self._arguments, self._folder, self._before_exec):
                    for answers in life.answers():
                        answered += len(answers)
                        yield from (answer for answer in answers if answer is not None)
            except BadAnswer as error:
                raise self._nonsense(error, life) from None
            except NotExecutable as error:
                raise NotExecutable(f"stage {self._label}: {error}") from error
            if answered or not pending:
                limit, deaths = None, 0
            elif limit == 1:
                deaths += 1
                if deaths >= self._attempts_max:
                    raise self._gave_up(pending[0], life, deaths)
            else:
                limit = max(1, life.given // 2)

    def _nonsense(self, error: BadAnswer, life: Life) -> CommandFailed:
        if not life.owed:
            return CommandFailed(f"{self._name} answered {error.text!r:.200} although it was asked nothing more")
        key, value = life.owed[0]
        return CommandFailed(
            f"{self._name} answered {error.text!r:.200} to {key}: {value!r:.200}; answers are 'filter', or 'forward', "
            f"'key: …' and 'value: …', a line each{life.last_words()}"
        )

    def _gave_up(self, record: Record, life: Life, deaths: int) -> CommandFailed:
        key, value = record
        return CommandFailed(f"{self._name} {life.ending} {deaths} times at {key}: {value!r:.200}{life.last_words()}")

    @property
    def _name(self) -> str:
        return f"stage {self._label}: {self._arguments[0]}"
