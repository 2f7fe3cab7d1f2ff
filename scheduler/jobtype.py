"""Job types: the classes and functions that say what jobs do, and what Tenure knows of them.

A job's durable state is its class's fields. What a handler hangs on `self` under any other name (a
connection, a cache) lives as long as this node keeps the job in memory, and is not stored.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from tenure.scheduler.bodies import DEPTH_MAX, check, is_too_deep
from tenure.scheduler.errors import Mistake, NotPicklable, Undecodable, UnknownJobType, WrongType
from tenure.scheduler.handlers import check_handlers, decoder_of, message_type_of, own_names
from tenure.scheduler.keys import checked_address
from tenure.scheduler.wire import SECONDS_MAX, UNSTORABLE, Kind

__all__ = ["Job", "JobType", "Registry", "Retry", "job", "registry"]

Misfire = Literal["run_once", "skip", "catch_up"]
OnFailure = Literal["park", "skip"]
FACTOR_MAX = 1000
COUNT_MAX = 2**63 - 1
HANDLERS = {
    Kind.START: "on_start",
    Kind.MESSAGE: "on_message",
    Kind.TIMEOUT: "on_timeout",
    Kind.CRON: "on_timeout",
    Kind.RESUMED: "on_resume",
    Kind.STOP: "on_stop",
    Kind.ACTIVITY: "on_activity",
}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Job(Struct, dict=True, kw_only=True):
    """The base of class-style jobs: annotated fields are the durable state, `on_…` methods are its turns.

    `on_start(ctx)`, `on_message(ctx, message)`, `on_timeout(ctx)`, `on_activity(ctx, event)` (see
    `Context.start_activity`), `on_resume(ctx)` (after a move) and `on_stop(ctx)` (before removal) may be plain or
    async, and may be left out. A static method
    `upgrade(state: dict, version: int) -> dict` turns the state of an older version into this one's.
    """


class Retry(Struct, frozen=True, kw_only=True):
    """How often a turn that failed is tried again, and how long to wait in between.

    Twenty attempts, as it is by default, take about ten minutes: what is out of reach for so long may come back
    meanwhile. None: without end. Each pause is up to a tenth longer than it says, so that jobs that failed together
    don't all try together. What raises one of `not_on` is not tried again.
    """

    attempts_max: int | None = 20
    first_delay_s: float = 0.1
    factor: float = 2.0
    delay_max_s: float = 60.0
    not_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        is_right = (
            (self.attempts_max is None or _is_count(self.attempts_max))
            and _is_number(self.first_delay_s, 0, SECONDS_MAX)
            and _is_number(self.factor, 1, FACTOR_MAX)
            and _is_number(self.delay_max_s, 0)
        )
        if not is_right:
            raise Mistake(
                "retry needs a whole number attempts_max >= 1 (None: without end), first_delay_s from 0 to a hundred "
                f"years, a factor from 1 to {FACTOR_MAX} and delay_max_s >= 0: {self}"
            )
        if not (isinstance(self.not_on, tuple) and all(map(_is_exception, self.not_on))):
            raise Mistake(f"retry: not_on is a tuple of exception classes, (ValueError,), not {self.not_on!r}")

    def delay_s(self, attempts: int) -> float:
        """The pause before the next try, after `attempts` of them."""
        return min(self.delay_max_s, SECONDS_MAX, self.first_delay_s * self.factor ** min(attempts - 1, 64))


class _Codec(Protocol):
    def load(self, state: bytes | Raw) -> Any: ...
    def dump(self, instance: Any) -> bytes: ...


class JobType:
    """A registered job type: how to load, run and store its jobs."""

    def __init__(
        self,
        name: str,
        target: Any,
        *,
        version: int = 1,
        application: str = "",
        retry: Retry | None = None,
        on_failure: OnFailure = "park",
        misfire: Misfire = "run_once",
        misfire_grace_s: float = 1.0,
        remember_s: float = 86_400.0,
        timeout_s: float | None = None,
        blocking: bool = False,
        topics: tuple[str, ...] = (),
        pickled: bytes = b"",
    ) -> None:
        _check_options(name, target, version, misfire, on_failure)
        _check_seconds(name, misfire_grace_s, remember_s, timeout_s)
        self.name, self.target, self.version, self.application = name, target, version, application
        self.retry, self.on_failure = retry or Retry(), on_failure
        self.misfire: Misfire = misfire
        self.misfire_grace_s, self.remember_s, self.timeout_s = misfire_grace_s, remember_s, timeout_s
        self.blocking, self.topics, self.pickled = blocking, _checked_topics(name, topics), pickled
        self.is_class = isinstance(target, type)
        self.handlers: dict[int, Callable[..., Any]] = {}
        if self.is_class:
            for kind, handler in HANDLERS.items():
                if (found := getattr(target, handler, None)) is not None:
                    self.handlers[kind] = found
        else:
            self.handlers[Kind.MESSAGE] = target
        self.state_type: Any = target if self.is_class else dict[str, Any]
        self.is_async = blocking or timeout_s is not None or any(map(_is_async, self.handlers.values()))
        if not any((timeout_s in (None, float("inf")), blocking, *map(_is_async, self.handlers.values()))):
            raise Mistake(
                f"job type {name!r}: timeout_s can't end a plain handler, which shares the node's loop; define its "
                "handlers with `async def`, or run them in threads (blocking=True)"
            )
        self.async_kinds = frozenset(kind for kind, found in self.handlers.items() if _is_async(found))
        by_name = {HANDLERS[kind] if self.is_class else "": found for kind, found in self.handlers.items()}
        check_handlers(name, target, by_name, set(HANDLERS.values()))
        self.message_type = message_type_of(self.handlers.get(Kind.MESSAGE), skip=2 if self.is_class else 1)
        self.decode_message: Callable[[Any], Any] = decoder_of(name, "messages", self.message_type)
        self._is_choosy = self.message_type is not Any and Kind.MESSAGE in self.handlers
        self._decode_state: Callable[[Any], Any] = decoder_of(name, "state", self.state_type)
        self.upgrade: Callable[[dict[str, Any], int], Any] | None = getattr(target, "upgrade", None)
        self.keeps_instance = Kind.RESUMED in self.handlers

    def __repr__(self) -> str:
        return f"JobType({self.name!r}, version={self.version})"

    # -- states -----------------------------------------------------------------------------------

    def initial(self, parameters: dict[str, Any]) -> bytes:
        """The state of a new job; raises `WrongType` with the path of the parameter that does not fit."""
        if self.is_class:
            self._check_names(parameters.keys())
        try:
            instance = msgspec.convert(parameters, self.state_type, builtin_types=_NATIVE)
            return self.dump(instance)
        except (msgspec.ValidationError, TypeError) as error:
            raise WrongType(f"parameters of job type {self.name!r}: {error}") from error

    def _check_names(self, given: Collection[str]) -> None:
        fields = {field.encode_name: field for field in msgspec.structs.fields(self.target)}
        if unknown := [name for name in given if name not in fields]:
            has = f"it has {', '.join(fields)}" if fields else "it has none"
            raise WrongType(f"job type {self.name!r} has no field {', '.join(sorted(map(str, unknown)))}; {has}")
        if missing := [name for name, field in fields.items() if field.required and name not in given]:
            raise WrongType(f"parameters of job type {self.name!r}: missing {', '.join(missing)} (no default)")

    def load(self, state: Any, version: int) -> Any:
        """The live job from its stored state, upgraded if it is an older version's; raises `Undecodable`."""
        try:
            if version < self.version and self.upgrade is not None:
                upgraded = self.upgrade(cast(dict[str, Any], _decode(state)), version)
                state = _encode(upgraded)
            return self._decode_state(state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an `upgrade` hook may raise anything
            raise Undecodable(
                f"the state (version {version}) can't be read by job type {self.name!r} version {self.version}: {error}"
            ) from error

    def dump(self, instance: Any) -> bytes:
        """The bytes to store; raises `WrongType` if a field holds what could not be read back."""
        try:
            state = _encode(instance)
            if not self.is_class and (odd := [key for key in instance if not isinstance(key, str)]):
                raise TypeError(f"the key {odd[0]!r} is no string")
            self._decode_state(state)
        except (msgspec.MsgspecError, *UNSTORABLE) as error:
            raise WrongType(f"the state of job type {self.name!r} can't be stored: {error}") from error
        return state

    # -- messages ---------------------------------------------------------------------------------

    def takes(self, encoded: bytes) -> bool:
        """Does this message fit? Said quickly of most: of the others `check_message` says whether, and why not."""
        if not self._is_choosy or len(encoded) > DEPTH_MAX:
            return False
        try:
            self.decode_message(encoded)
        except Exception:  # noqa: BLE001  # it is raised there
            return False
        return True

    def check_message(self, encoded: bytes, to: str) -> None:
        """Raises `WrongType` with the path of the wrong field, if this message does not fit."""
        if Kind.MESSAGE not in self.handlers:
            raise WrongType(f"job {to!r} takes no messages: its type {self.name!r} has no on_message")
        if self.message_type is Any:
            check(encoded, f"message to {to!r}")
            return
        try:
            self.decode_message(encoded)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WrongType(f"message to {to!r} ({self.name!r} takes {_shown(self.message_type)}): {error}") from error
        if len(encoded) > DEPTH_MAX and is_too_deep(encoded):
            raise WrongType(f"message to {to!r} is nested deeper than {DEPTH_MAX} lists and maps")


_NATIVE = (bytes, bytearray, memoryview)
_Class = type


def _shown(type: Any) -> str:
    # A union has a name only in newer Pythons; `list[Order]` has that of a list.
    return type.__name__ if isinstance(type, _Class) else own_names(str(type))


def _is_async(handler: Any) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(handler)) or inspect.iscoroutinefunction(
        getattr(type(handler), "__call__", None)  # noqa: B004  # an instance with an async __call__
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= COUNT_MAX


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_number(value: Any, least: float, most: float = float("inf")) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _check_options(name: str, target: Any, version: int, misfire: str, on_failure: str) -> None:
    if not name or not isinstance(name, str) or len(name) > 200:
        raise Mistake(f"a job type needs a name of 1 to 200 characters, not {name!r}")
    if not callable(target):
        raise Mistake(f"job type {name!r} must be a class or a function, not {target!r}")
    if isinstance(target, type) and not issubclass(target, Job):
        raise Mistake(f"the class of job type {name!r} must inherit from tenure.Job")
    if not _is_count(version):
        raise Mistake(f"job type {name!r}: versions are whole numbers and begin at 1, not {version!r}")
    if misfire not in typing.get_args(Misfire):
        raise Mistake(f"job type {name!r}: misfire is one of {', '.join(typing.get_args(Misfire))}, not {misfire!r}")
    if on_failure not in typing.get_args(OnFailure):
        raise Mistake(f'job type {name!r}: on_failure is "park" or "skip", not {on_failure!r}')


def _check_seconds(name: str, misfire_grace_s: float, remember_s: float, timeout_s: float | None) -> None:
    for option, value in (("misfire_grace_s", misfire_grace_s), ("remember_s", remember_s)):
        if not _is_number(value, 0, SECONDS_MAX):
            raise Mistake(
                f"job type {name!r}: {option} is a number of seconds from 0 to a hundred years, not {value!r}"
            )
    if timeout_s is not None and not (_is_number(timeout_s, 0) and timeout_s > 0):
        raise Mistake(f"job type {name!r}: timeout_s is a positive number of seconds, or None, not {timeout_s!r}")


def _checked_topics(name: str, topics: Iterable[str]) -> tuple[str, ...]:
    if isinstance(topics, str):
        raise Mistake(f"job type {name!r}: topics is a tuple of names, ({topics!r},), not one of them")
    try:
        return tuple(map(checked_address, topics))
    except Mistake as error:
        raise Mistake(f"job type {name!r}: what it subscribes to can't be a topic: {error}") from None


class Registry:
    """Job types by name."""

    def __init__(self, *types: JobType) -> None:
        self._types: dict[str, JobType] = {}
        for type in types:
            self.add(type)

    @property
    def is_choosy(self) -> bool:
        """Is there a type here that does not take every message?"""
        return any(type.message_type is not Any or Kind.MESSAGE not in type.handlers for type in self._types.values())

    def add(self, type: JobType) -> None:
        """Register; another class under a name that is taken is a mistake, a newer definition of the same is not."""
        there = self._types.get(type.name)
        if there is not None and (there.target.__module__, there.target.__qualname__) != (
            type.target.__module__,
            type.target.__qualname__,
        ):
            both = own_names(f"is {there.target!r} already; it can't be {type.target!r} too")
            raise Mistake(f"job type {type.name!r} {both}")
        self._types[type.name] = type

    @contextmanager
    def collecting(self) -> Iterator["Registry"]:
        """While open, what is registered goes into a registry that begins empty; this one stays as it was."""
        before, self._types = self._types, {}
        collected = Registry()
        try:
            yield collected
        finally:
            collected._types, self._types = self._types, before

    def get(self, name: str) -> JobType | None:
        """The type of this name, or None."""
        return self._types.get(name)

    def __getitem__(self, name: str) -> JobType:
        try:
            return self._types[name]
        except KeyError:
            known = ", ".join(sorted(self._types)) or "none"
            raise UnknownJobType(f"no job type {name!r} is registered here (known: {known})") from None

    def __iter__(self) -> Iterator[JobType]:
        return iter(list(self._types.values()))

    def __len__(self) -> int:
        return len(self._types)

    def of(self, target: Any) -> JobType | None:
        """The type that this class, function or name was registered as."""
        if isinstance(target, str):
            return self[target]
        if isinstance(target, JobType):
            return target
        return next((type for type in self._types.values() if type.target is target), None)

    def name_of(self, target: Any) -> str:
        """The name of this class or function; a name may be known elsewhere only."""
        if isinstance(target, str):
            return target
        found = self.of(target)
        if found is None:
            raise UnknownJobType(own_names(f"{target!r} is not registered as a job type"))
        return found.name


registry = Registry()
"""What `@tenure.job` registers in: the job types of this process."""

Target = TypeVar("Target", bound=Callable[..., Any])


def job(
    name: str,
    *,
    version: int = 1,
    application: str = "",
    retry: Retry | None = None,
    on_failure: OnFailure = "park",
    misfire: Misfire = "run_once",
    misfire_grace_s: float = 1.0,
    remember_s: float = 86_400.0,
    timeout_s: float | None = None,
    blocking: bool = False,
    topics: tuple[str, ...] = (),
    registry: Registry = registry,
) -> Callable[[Target], Target]:
    """Register a class (or a function of a context and a message) as a job type.

    `name` is what is stored: classes may move between modules. `version` grows when the state changes
    shape (see `Job.upgrade`). `blocking` runs plain handlers in a thread. `timeout_s` ends turns of async
    handlers and of those in threads; a type that has only plain ones, which nothing can end, is refused with
    it. `topics` are subscribed to at the start of each job. `misfire` says what happens to a timer that nobody
    could fire in time: run it once, skip it, or catch up on each missed time. `on_failure` says what becomes of
    an event that failed in all attempts of `retry`: the job is parked with it, or it is skipped (a message becomes
    a dead letter) and the job goes on; a question never parks its job, its error is the answer. `remember_s` is
    how long message ids are remembered.
    """

    if not isinstance(name, str):
        what = getattr(name, "__name__", "it")
        raise Mistake(f"@tenure.job takes the name that is stored: write @tenure.job({what.lower()!r}) above {what}")

    def register(target: Target) -> Target:
        registry.add(
            JobType(
                name,
                target,
                version=version,
                application=application,
                retry=retry,
                on_failure=on_failure,
                misfire=misfire,
                misfire_grace_s=misfire_grace_s,
                remember_s=remember_s,
                timeout_s=timeout_s,
                blocking=blocking,
                topics=topics,
            )
        )
        return target

    return register


def pickled_type(target: Any) -> JobType:
    """An ad hoc job type: the callable itself travels, by cloudpickle."""
    import cloudpickle

    try:
        blob = cloudpickle.dumps(target)
    except Exception as error:
        raise NotPicklable(f"{target!r} can't be pickled: {error}; register it with @tenure.job instead") from error
    return JobType(f"pickled:{getattr(target, '__qualname__', 'callable')}"[:200], target, pickled=blob)


def unpickled_type(name: str, blob: bytes) -> JobType:
    """Back from `Definition.pickled`. Runs whatever the bytes say: only where the node allows it."""
    import cloudpickle

    return JobType(name, cloudpickle.loads(blob), pickled=blob)
