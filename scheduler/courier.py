"""What a commit lets out: messages to other partitions, and answers to clients.

A partition is a sender like any other. What is not known to have arrived stays in the journaled outbox;
a new owner sends it again, byte for byte, into the same slots.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from tenure.scheduler.grid.port import GridError, Map
from tenure.scheduler.holding import HINT
from tenure.scheduler.keys import client_partition, partition_sender, reply_key, slot_key
from tenure.scheduler.wire import Answer

if TYPE_CHECKING:
    from tenure.scheduler.tenure import Tenure

__all__ = ["Courier"]

POSTS_AT_ONCE_MAX = 64
LETTER_BYTES_MAX = 2**20
"""Answers to one client that go in one call: no more bytes, but for one that is larger."""


class Courier:
    """One tenure's outgoing traffic."""

    def __init__(self, tenure: "Tenure") -> None:
        self.tenure, self.host = tenure, tenure.host
        self.sender = partition_sender(tenure.partition)
        self.unsent_bytes = 0
        self._slots: deque[tuple[int, int, bytes]] = deque()
        self._answers: deque[tuple[bytes, list[Answer]]] = deque()
        self._stored: dict[int, set[int]] = defaultdict(set)
        self._below: dict[int, int] = {}
        """partition -> all our slots below this are stored"""
        self._news: dict[int, int] = {}
        self._answered: list[tuple[bytes, int]] = []
        self._wake = trio.Event()
        self._limit = trio.Semaphore(POSTS_AT_ONCE_MAX)
        self._nursery: trio.Nursery | None = None

    def resume(self) -> None:
        """Send what the last tenure may not have sent."""
        state = self.tenure.state
        for partition, slots in state.outbox.items():
            self._below[partition] = slots[0][0]
            self.send([(partition, n, slot) for n, slot in slots], [])
        self.send([], [(client, answer) for (client, _), answer in state.answers.items()])

    def send(self, slots: list[tuple[int, int, bytes]], answers: list[tuple[bytes, Answer]]) -> None:
        """These are committed: let them out."""
        if not slots and not answers:
            return
        for partition, n, slot in slots:
            self._below.setdefault(partition, n)
            self._slots.append((partition, n, slot))
            self.unsent_bytes += len(slot)
        if len(answers) == 1:
            client, answer = answers[0]
            self._answers.append((client, [answer]))
        elif answers:
            by_client: dict[bytes, list[Answer]] = defaultdict(list)
            for client, answer in answers:
                by_client[client].append(answer)
            self._answers.extend((client, some) for client, its in by_client.items() for some in _letters(its))
        self._start_what_may()
        if self._answers or self._slots:
            self._wake.set()

    def confirmed(self) -> tuple[dict[int, int], list[tuple[bytes, int]]]:
        """What has arrived since the last time this was asked, for the next record."""
        news, self._news = self._news, {}
        answered, self._answered = self._answered, []
        return news, answered

    def is_quiet(self) -> bool:
        """Is nothing on its way?"""
        return not self._slots and not self._answers and not any(self._stored.values()) and not self.unsent_bytes

    async def run(self) -> None:
        """Send until cancelled."""
        async with trio.open_nursery() as self._nursery:
            try:
                while True:
                    self._wake = trio.Event()
                    self._start_what_may()
                    if self._answers or self._slots:
                        async with self._limit:  # when one has ended
                            pass
                    else:
                        await self._wake.wait()
            finally:
                self._nursery = None  # a commit that comes to its end now lets nothing out any more

    def _start_what_may(self) -> None:
        if self._nursery is None:
            return
        while self._answers or self._slots:
            try:
                self._limit.acquire_nowait()
            except trio.WouldBlock:
                return
            if self._answers:
                self._nursery.start_soon(self._answer, *self._answers.popleft())
            else:
                self._nursery.start_soon(self._post, *self._slots.popleft())

    async def _post(self, partition: int, n: int, slot: bytes) -> None:
        key, attempt = slot_key(self.sender, self.host.incarnation, n), 0
        try:
            while not await self._set(partition, key, slot):
                attempt += 1
                await self.tenure.journal.pause(attempt)
        finally:
            self._limit.release()
        self._arrived(partition, n, slot)

    async def _set(self, partition: int, key: bytes, slot: bytes) -> bool:
        """True when it is stored; it stays in the outbox until then."""
        try:
            await self.host.grid.set(Map.INBOX, partition, key, slot)
        except GridError:
            return False
        return True

    def _arrived(self, partition: int, n: int, slot: bytes) -> None:
        was_full = self.tenure.outbox_is_full()
        self.unsent_bytes -= len(slot)
        stored, below = self._stored[partition], self._below[partition]
        stored.add(n)
        while below in stored:
            stored.remove(below)
            below += 1
        if below > self._below[partition]:
            self._below[partition] = self._news[partition] = below
        if was_full and not self.tenure.outbox_is_full():
            self.tenure.wake()

    async def _answer(self, client: bytes, answers: list[Answer]) -> None:
        grid, partition = self.host.grid, client_partition(client, self.host.grid.partition_count)
        # The bell carries the answers, and is what a client waits for; it looks for the others if it hears nothing.
        encode = self.host.formats.encode
        entries = {client: (letter := encode(answers))}
        if len(answers) > 1:
            entries |= {reply_key(client, answer.n): encode([answer]) for answer in answers if answer.n != HINT}
        elif answers[0].n != HINT:
            entries[reply_key(client, answers[0].n)] = letter
        attempt = 0
        try:
            while True:
                try:
                    await grid.set_together(Map.REPLIES, partition, entries)
                    break
                except GridError:
                    attempt += 1
                    await self.tenure.journal.pause(attempt)
        finally:
            self._limit.release()
        self._answered.extend((client, answer.n) for answer in answers if answer.n != HINT)


def _letters(answers: list[Answer]) -> Iterator[list[Answer]]:
    letter: list[Answer] = []
    size_bytes = 0
    for answer in answers:
        if letter and size_bytes + len(answer.body) > LETTER_BYTES_MAX:
            yield letter
            letter, size_bytes = [], 0
        letter.append(answer)
        size_bytes += len(answer.body)
    yield letter
