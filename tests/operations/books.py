"""A steady load while a page is run, and whether the books balance when it is over."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tenure

__all__ = ["JOBS", "steady_load"]

JOBS, EVERY_S = 40, 0.1


@contextmanager
def steady_load(cluster: str, app: Path) -> Iterator[None]:
    """While open, one is added to each of a few jobs, ten times a second. Left in peace, the books must balance."""
    registry = tenure.load_application(str(app), apart=True)
    sent = dict.fromkeys((f"book-{n}" for n in range(JOBS)), 0)
    stop, failures = threading.Event(), list[BaseException]()

    def publish() -> None:
        try:
            while not stop.wait(EVERY_S):
                client.publish_many([(id, {"n": 1}) for id in sent], timeout_s=60)
                for id in sent:
                    sent[id] += 1
        except Exception as error:  # noqa: BLE001  # raised again below, in the test's own thread
            failures.append(error)

    with tenure.SyncClient(cluster, registry=registry) as client:
        client.schedule_many([("counter", id, {}) for id in sent])
        before = {id: client.state(id).total for id in sent}
        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]
        assert min(sent.values()) > 0
        assert {id: client.state(id, timeout_s=60).total - before[id] for id in sent} == sent
