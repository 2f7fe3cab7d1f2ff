"""Transfers: jobs send to jobs, and what there is in all stays the same."""

from collections import Counter
from typing import Any, ClassVar

from tenure.scheduler.client import GridClient
from tenure.scheduler.errors import Backlogged
from tenure.scheduler.jobtype import Job, JobType
from tenure.simulation.histories import Findings
from tenure.simulation.workloads.base import Drive, Workload, states

__all__ = ["Account", "Transfers", "judge_accounts"]

START = 1000


class Account(Job):
    """Gives and takes. Each gift is numbered by its giver, for each taker."""

    balance: int = START
    orders: list[int] = []
    """Numbers of the orders that were carried out."""
    given: dict[str, int] = {}
    taken: dict[str, list[int]] = {}

    def on_message(self, ctx: Any, message: dict[str, Any]) -> None:
        if "order" in message:
            self.orders.append(message["order"])
            to, amount = message["to"], message["amount"]
            number = self.given.get(to, 0)
            self.given[to] = number + 1
            self.balance -= amount
            ctx.send(to, {"from": ctx.id, "n": number, "amount": amount})
        else:
            self.taken.setdefault(message["from"], []).append(message["n"])
            self.balance += message["amount"]


def judge_accounts(accounts: dict[str, Account], ordered: dict[int, str], acknowledged: set[int]) -> Findings:
    """Orders at most once, each gift exactly once and in order, and nothing gained or lost."""
    found = Findings()
    done = Counter(order for account in accounts.values() for order in account.orders)
    if twice := sorted(order for order, times in done.items() if times > 1):
        found.wrong.append(f"orders carried out twice: {twice}")
    for id, account in accounts.items():
        if strange := [order for order in account.orders if ordered.get(order) != id]:
            found.wrong.append(f"{id} carried out what it was never told: {strange}")
    if missing := sorted(acknowledged - done.keys()):
        found.waiting.append(f"orders acknowledged, not carried out: {missing}")
    is_settled = True
    for giver_id, giver in accounts.items():
        for taker_id, taker in accounts.items():
            given, taken = giver.given.get(taker_id, 0), taker.taken.get(giver_id, [])
            if taken != list(range(len(taken))):
                found.wrong.append(f"{taker_id} took from {giver_id} out of order, twice or with gaps: {taken}")
            elif len(taken) != given:
                # More taken than given may be seen too: jobs are not looked at in one moment.
                is_settled = False
                found.waiting.append(f"{taker_id} has taken {len(taken)} of {given} gifts of {giver_id}")
    if is_settled and (total := sum(account.balance for account in accounts.values())) != START * len(accounts):
        found.wrong.append(f"{START * len(accounts)} has become {total}")
    return found


class Transfers(Workload):
    """Accounts that are told to give to each other."""

    types: ClassVar[tuple[JobType, ...]] = (JobType("account", Account),)
    type_name, prefix = "account", "account"

    async def prepare(self, client: GridClient) -> None:
        self.ordered: dict[int, str] = {}
        self.acknowledged: set[int] = set()
        self.jobs = [f"{self.prefix}{n}" for n in range(self.random.randint(3, 6))]
        for id in self.jobs:
            await client.defining.schedule(self.type_name, id, {})

    def drives(self) -> list[Drive]:
        return [self._order]

    async def _order(self, client: GridClient) -> None:
        while self.world.working:
            batch = [self._one() for _ in range(self.random.choice((6, 24, 56)))]
            outcome = await self.world.attempt(len(batch), lambda batch=batch: client.publish_many(batch))  # type: ignore[misc]
            doubtful: set[int] = set()
            if isinstance(outcome.error, Backlogged):
                doubtful = {body["order"] for _, body in outcome.error.unstored}
            if outcome.done or isinstance(outcome.error, Backlogged):
                self.acknowledged |= {body["order"] for _, body in batch} - doubtful
            await self.pause(0.5, 2.0)

    def _one(self) -> tuple[str, dict[str, Any]]:
        giver = self.random.choice(self.jobs)
        order = len(self.ordered)
        self.ordered[order] = giver
        return giver, {"order": order, "to": self.random.choice(self.jobs), "amount": self.random.randint(1, 20)}

    async def examine(self, client: GridClient) -> Findings:
        found = Findings()
        accounts = await states(client, self.jobs, found)
        if len(accounts) == len(self.jobs):
            found.add(judge_accounts(accounts, self.ordered, self.acknowledged))
        return found
