"""The asking side of a client: questions that wait, and the answers that come.

A question goes through the lanes like any message, and bears a number. Its answer is an entry of the client's own: the
bell rings when it is there, and whoever waits looks from time to time, should the bell have been lost.
"""

import math
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw

from tenure.scheduler import errors
from tenure.scheduler.allegiance import LOST
from tenure.scheduler.deadline import checked_limit
from tenure.scheduler.errors import AskFailed, Backlogged, ClusterReplaced, NotDone, PartitionLost
from tenure.scheduler.grid.port import EntryEvent, GridError, Map
from tenure.scheduler.held_back import told
from tenure.scheduler.holding import HINT
from tenure.scheduler.keys import client_partition, reply_key
from tenure.scheduler.pace import run_clock
from tenure.scheduler.soon import Signal, Soon
from tenure.scheduler.wire import Answer, Envelope, Kind, decode

if TYPE_CHECKING:
    from tenure.scheduler.client import GridClient
    from tenure.scheduler.sending import Sending

__all__ = ["Asking"]


class _Question:
    __slots__ = ("answer", "bell")

    def __init__(self) -> None:
        self.bell = Signal()
        self.answer: Answer | None = None


class Asking:
    """How one client asks."""

    def __init__(self, client: "GridClient", sending: "Sending", nursery: trio.Nursery) -> None:
        self.client, self.grid, self.settings = client, client.grid, client.settings
        self.sender, self.formats, self.partition_count = client.sender, client.formats, client.partition_count
        self._sending, self._send = sending, sending.send
        self._nursery = nursery
        self._questions: dict[int, _Question] = {}
        self._question_count = 0
        self._soon, self._clock = Soon(nursery, self.settings.reply_poll_s), run_clock()

    def give_up(self) -> None:
        """Let go of those who wait: there will be no answer."""
        for question in self._questions.values():
            question.bell.give()

    async def question(
        self,
        partition: int,
        envelope: Envelope,
        deadline_s: float | None = None,
        *,
        patience_s: float = math.inf,
        in_all_s: float | None = None,
    ) -> Raw:
        """Send an envelope that wants an answer, and wait for that: no longer than `patience_s` once it is stored, for
        who asks again. `in_all_s`: what to say of the deadline of a question that is one of several tries."""
        limit_s = self.settings.ask_deadline_s if deadline_s is None else deadline_s
        end_s, said_s = self._clock() + checked_limit(limit_s), limit_s if in_all_s is None else in_all_s
        self._question_count += 1
        n = envelope.reply = self._question_count
        question = self._questions[n] = _Question()
        try:
            # It has a deadline of its own: what was not tried by then is taken back.
            await self._send([(envelope.to, None)], [(partition, envelope)], limit_s)
            await self._await_answer(n, question, min(end_s, self._clock() + patience_s))
        except Backlogged as backlogged:
            if self.client.allegiance.is_lost():
                raise _lost(partition, envelope.to) from backlogged
            why = self.client.allegiance.why_not or told(backlogged.full)
            when = "before this client was closed"
            if not self._sending.closed:
                when, why = f"within {said_s:g} s", why or "the cluster does not keep up, or does not answer"
            raise NotDone(
                f"the question to {_whose(partition, envelope.to)} is not known to be stored {when}{why and ': '}{why}"
            ) from backlogged
        except ClusterReplaced as replaced:
            replaced.unstored = []  # a question that is asked again is another one
            raise
        finally:
            del self._questions[n]
        if question.answer is None and self._sending.refused is not None:
            raise self._sending.refused
        if question.answer is None:
            raise await self._no_answer(partition, envelope.to, said_s, envelope.kind == Kind.MESSAGE)
        self.grid.discard(Map.REPLIES, client_partition(self.sender, self.partition_count), [reply_key(self.sender, n)])
        return _unwrap(question.answer)

    def refuse(self, n: int, name: str, text: str) -> None:
        """A question that was not sent is not going to be."""
        if (question := self._questions.get(n)) is not None and question.answer is None:
            question.answer = Answer(n, False, Raw(msgspec.msgpack.encode([name, text])))
            question.bell.give()

    async def _no_answer(self, partition: int, to: str, limit_s: float, is_message: bool) -> errors.TenureError:
        if self.client.allegiance.replaced:
            return ClusterReplaced(self.client.allegiance.replaced)
        if self.client.allegiance.is_lost():
            return _lost(partition, to)
        whose = _whose(partition, to)
        if self._sending.closed:
            return NotDone(f"no answer from {whose}, as this client was closed; its turn may still run")
        if partition in await self.client.directory.lost_partitions():
            return PartitionLost(
                f"no answer from {whose}: partition {partition} is lost, as all copies of its data were; "
                "restore its jobs from a snapshot"
            )
        full = self._sending.held_back.why({to}) if is_message else {}
        why = self.client.allegiance.why_not or told(full) or "its turn may still run"
        if is_message and not self.client.allegiance.why_not and not full:
            why += await self._sending.held_back.why_it_waits(partition, to)
        return NotDone(f"no answer from {whose} within {limit_s:g} s; {why}")

    async def _await_answer(self, n: int, question: _Question, end_s: float) -> None:
        """The bell rings, or we look from time to time."""
        if self._clock() + self._soon.late_s < end_s:
            if await self._soon.comes(question.bell):
                return
            with trio.move_on_at(end_s):
                await self._look_for(n, question.bell)
        else:
            with trio.move_on_at(end_s):
                await question.bell.wait()

    async def _look_for(self, n: int, bell: Signal) -> None:
        partition, pause_s = client_partition(self.sender, self.partition_count), self.settings.reply_poll_s
        while not bell.is_given:
            try:
                stored = await self.grid.get(Map.REPLIES, partition, reply_key(self.sender, n))
                if stored is not None:
                    self._hear(stored)
                elif not await self.client.allegiance.renew() and self.client.allegiance.replaced:
                    return  # nobody is left who could answer
            except GridError:
                pass
            unheard = self.grid.ownership().is_unheard(partition)
            pause_s = self.settings.reply_poll_s if unheard else min(2.0, pause_s * 1.5)
            with trio.move_on_after(pause_s):
                await bell.wait()

    def on_replies(self, events: list[EntryEvent]) -> None:
        """Answers that came in."""
        for event in events:
            if event.value is not None:
                self._hear(event.value)

    def _hear(self, stored: bytes) -> None:
        try:
            answers = decode(stored, list[Answer])
        except errors.Final:
            answers = []  # the poll finds no answer either, and the deadline says so
        if stored[:1] != bytes((self.formats.declared,)):
            self._nursery.start_soon(self.client.learn_format)
        for answer in answers:
            if answer.n == HINT:
                self._sending.held_back.hear(answer)
            elif (question := self._questions.get(answer.n)) is not None and question.answer is None:
                question.answer = answer
                question.bell.give()


def _whose(partition: int, to: str) -> str:
    return f"{to!r}" if to else f"partition {partition}"


def _lost(partition: int, to: str) -> PartitionLost:
    return PartitionLost(f"no answer from {_whose(partition, to)}: {LOST}; restore them from a snapshot")


def _unwrap(answer: Answer) -> Raw:
    if answer.ok:
        return answer.body
    try:
        name, text = msgspec.msgpack.decode(answer.body, type=tuple[str, str])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise AskFailed(f"the answer can't be understood: {error}") from error
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.TenureError) and kind is not Backlogged:
        raise kind(text)
    raise AskFailed(f"{name}: {text}")
