"""Whatever is killed, cut off or closed: never two at work, one end for each activity, and the job hears it once."""

from random import Random

import pytest
import trio

from tenure.simulation.determinism import deterministic
from tests.pure.core.activities_bench import JOB, Machines
from tests.pure.core.bench import Bench, Opened, rest

ACTIVITIES = 6


class Chaos:
    """Random trouble for one job with a few activities, on two machines."""

    def __init__(self, machines: Machines, seed: int) -> None:
        self.machines, self.random = machines, Random(seed)
        self.owner: Opened
        self.wrong: list[str] = []

    async def run(self) -> None:
        machines, random = self.machines, self.random
        self.owner = await machines.begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch)
            nursery.start_soon(self.work)
            for n in range(ACTIVITIES):
                await machines.ask(start=f"a{n}", attempts_max=1000, orphan_after_s=30, cancel_deadline_s=5)
                for _ in range(random.randrange(4)):
                    await self.trouble()
                    await rest(random.random() * random.choice([0.01, 1, 60]))
            for _ in range(10):
                await self.trouble()
                await rest(random.random() * 10)
            await self.settle()
            nursery.cancel_scope.cancel()

    async def trouble(self) -> None:
        machines, random = self.machines, self.random
        runs = [*machines.one.working, *machines.two.working]
        which = random.choice(("kill", "close", "die", "cut", "zombie", "end", "forget"))
        if which in ("kill", "close"):
            await (self.owner.kill() if which == "kill" else self.owner.close())
            await rest(random.random() * random.choice([0.01, 5]))
            self.owner = await machines.open(random.choice([machines.one, machines.two]))
        elif which == "zombie" and runs:
            # Somebody who was the owner once launches what is running, on either machine.
            await random.choice([machines.one, machines.two]).launch(random.choice(runs).run)
        elif which == "die" and runs:
            random.choice(runs).die()
        elif which == "end" and runs:
            random.choice(runs).end()
        elif which == "cut" and runs:
            run = random.choice(runs)
            run.cut_off = not run.cut_off
            run.is_stubborn = random.random() < 0.5

    async def work(self) -> None:
        """Runs end, as runs do."""
        while True:
            await rest(self.random.random() * 20)
            if runs := [*self.machines.one.working, *self.machines.two.working]:
                run, how = self.random.choice(runs), self.random.random()
                run.tell(progress=[1, 2])
                if how < 0.2:
                    run.fail("IOError: disk")
                elif how < 0.4:
                    run.succeed(run.run.tag)

    async def watch(self) -> None:
        while True:
            at_work = [run.run.activity for run in (*self.machines.one.working, *self.machines.two.working)]
            self.wrong += [f"{name} twice at {trio.current_time()}" for name in set(at_work) if at_work.count(name) > 1]
            await trio.sleep(0.05)

    async def settle(self) -> None:
        """No more trouble: all must come to an end."""
        with trio.fail_after(3000):
            while len(await self.machines.heard()) < ACTIVITIES:
                for run in (*self.machines.one.working, *self.machines.two.working):
                    run.cut_off = False
                await rest(5)
        await rest(300)


@pytest.mark.parametrize("seed", range(12))
async def test_trouble(bench: Bench, seed: int) -> None:
    machines = Machines(bench)
    chaos = Chaos(machines, seed)
    with deterministic(seed):
        await chaos.run()
    assert chaos.wrong == []
    heard = await machines.heard()
    assert sorted(event["name"] for event in heard) == [f"a{n}" for n in range(ACTIVITIES)]
    assert {event["status"] for event in heard} == {"succeeded"}
    assert machines.working() == 0
    for activity in await machines.described():
        # What counts is what the attempt that counts has said.
        assert activity["result"] == activity["tag"]
    assert JOB in chaos.owner.state.jobs
