"""What an unexpected error is, out of the groups that nurseries make, and how long its task stands still."""

import pytest
import trio

from tenure.scheduler.bulkhead import FORGIVEN_AFTER_S, PAUSE_MAX_S, SHOWN_MAX, Bulkhead, Pauses, cause_of


async def cancelled() -> trio.Cancelled:
    """One as trio makes them."""
    found: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            found.append(error)
            raise
    return found[0]


async def test_the_one_error_is_found_however_deep() -> None:
    error = KeyError("x")
    assert cause_of(error) is error
    assert cause_of(ExceptionGroup("", [ExceptionGroup("", [error])])) is error
    two = ExceptionGroup("", [error, ValueError("y")])
    found = cause_of(ExceptionGroup("", [two]))
    assert isinstance(found, ExceptionGroup)
    assert found.exceptions == two.exceptions
    mixed = BaseExceptionGroup("", [await cancelled(), ExceptionGroup("", [error])])
    assert cause_of(mixed) is error  # it was cancelled besides


async def test_a_cancellation_goes_on_up_alone() -> None:
    gone = await cancelled()
    with pytest.raises(trio.Cancelled):
        cause_of(gone)
    with pytest.raises(BaseExceptionGroup) as raised:
        cause_of(BaseExceptionGroup("", [gone, BaseExceptionGroup("", [gone])]))
    assert raised.value.split(trio.Cancelled)[1] is None


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(1)])
def test_what_ends_the_process_does(end: BaseException) -> None:
    with pytest.raises(type(end)):
        cause_of(end)
    with pytest.raises(BaseExceptionGroup) as raised:
        cause_of(BaseExceptionGroup("", [ValueError("x"), BaseExceptionGroup("", [end])]))
    assert raised.value.split(type(end))[0] is not None


async def test_pauses_grow_and_are_short_again_after_a_good_time(autojump_clock: trio.testing.MockClock) -> None:
    pauses, slept = Pauses(), []
    for _ in range(9):
        slept.append(pauses.next_s())
        await trio.sleep(slept[-1])
    assert slept == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    await trio.sleep(FORGIVEN_AFTER_S - 1)
    assert pauses.next_s() == PAUSE_MAX_S
    await trio.sleep(PAUSE_MAX_S + FORGIVEN_AFTER_S)
    assert pauses.next_s() == 1


async def test_heartbeats_say_little_of_many(autojump_clock: trio.testing.MockClock) -> None:
    told: list[str] = []
    bulkhead = Bulkhead(lambda: 0, lambda text, error: told.append(text))
    for partition in range(100):
        bulkhead.park(partition, ValueError("x" * 10_000))
    shown = bulkhead.shown()
    assert shown.keys() == set(range(100))
    assert sum(map(len, shown.values())) < SHOWN_MAX * 400
    assert "(1 times)" in shown[0]
    assert [partition for partition, text in shown.items() if text] == list(range(SHOWN_MAX))
    assert len(told) == 100
