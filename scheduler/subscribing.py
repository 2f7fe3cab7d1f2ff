"""Knowing when a job hears what is published to its topics: `schedule` returns then, and not before.

    its owner: the job has started ──► what it subscribes to ──► each topic's owner: the subscription has come

Each answer is committed with what it tells, so what is published after it is taken after it, by whoever.
"""

from typing import TYPE_CHECKING

from tenure.scheduler.wire import Envelope, Kind, Status

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Subscribing"]


class Subscribing:
    """Questions that wait in one tenure. It forgets them when it ends; they are asked again."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure = tenure
        self._to_start: list[Envelope] = []
        self._to_come: dict[tuple[str, str], list[Envelope]] = {}
        """(topic, job) -> who asks"""

    def answer_when_started(self, envelope: Envelope) -> None:
        """With the topics that the job subscribes to; none, if it is not there, or does not start."""
        self._to_start.append(envelope)
        self.tenure.wake()

    def rests(self) -> bool:
        """Does nobody wait for a job's start?"""
        return not self._to_start

    def answer(self) -> None:
        """In the tenure's loop, when definitions are dealt with."""
        if self._to_start:
            waiting, self._to_start = self._to_start, []
            for envelope in waiting:
                if self._is_to_start(envelope.to):
                    self._to_start.append(envelope)
                else:
                    self.tenure.turns.draft.answer_value(envelope, self._topics(envelope.to))

    def _topics(self, id: str) -> list[str]:
        record = self.tenure.state.jobs.get(id)
        if record is None or record.status in (Status.FINISHING, Status.STOPPING):
            return []  # it ends, or has ended
        return list(record.topics)

    def _is_to_start(self, id: str) -> bool:
        record, live = self.tenure.state.jobs.get(id), self.tenure.lives.by_id.get(id)
        if self.tenure.definitions.is_about(id) or (live is not None and live.loading):
            return True
        for draft in (self.tenure.turns.draft, self.tenure.turns.in_flight):
            if draft is not None and id in draft.changed and (record is None or not record.turns):
                return True  # what it has done is not committed yet
        if record is None or record.turns or record.status != Status.RUNNING or record.failure is not None:
            return False
        return live is not None and not live.stuck and bool(live.queue) and live.queue[0].kind == Kind.START

    def answer_when_subscribed(self, envelope: Envelope, job: str) -> None:
        """When the topic that the question is sent to has this job among its subscribers."""
        if job in self.tenure.taking.subscribers(envelope.to):
            self.tenure.turns.draft.answer_value(envelope, True)
        else:
            self._to_come.setdefault((envelope.to, job), []).append(envelope)

    def came(self, topic: str, job: str) -> None:
        """A subscription was taken."""
        for envelope in self._to_come.pop((topic, job), ()):
            self.tenure.turns.draft.answer_value(envelope, True)
