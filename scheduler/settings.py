"""Settings: one frozen object each for a cluster, a node and a client, validated once."""

from msgspec import Struct

from tenure.scheduler.errors import Mistake

__all__ = ["CLUSTER_KNOWN_S", "ClientSettings", "NodeSettings"]

CLUSTER_KNOWN_S = 5.0
"""What a client has read of the cluster's marker holds for so long: later, no acknowledgement counts before it has
looked again. Who restores a snapshot over a living cluster waits longer."""


NEVER_ZERO = {
    "batch_messages_max",
    "definitions_sweep_s",
    "group_bytes_max",
    "group_messages_max",
    "heartbeat_s",
    "reply_poll_s",
    "sweep_s",
    "window_slots",
}
"""Without any of these nothing would go on, or all would go round and round."""


class _Checked(Struct, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if not value >= 0:
                raise Mistake(f"{name} can't be negative: {value}")
            if not value and name in NEVER_ZERO:
                raise Mistake(f"{name} can't be 0")


MESSAGE_BYTES_LIMIT = 2 * 2**20
"""Half of what a turn may leave."""
_WITHIN = (
    ("turn_bytes_max", "record_bytes_max", 2),
    ("state_bytes_max", "turn_bytes_max", 1),
    ("answer_bytes_max", "turn_bytes_max", 1),
    ("message_bytes_max", "turn_bytes_max", 2),
)
"""A setting, another one, and how many times the first must fit into the second."""


class NodeSettings(_Checked, frozen=True, kw_only=True):
    """How a node runs. Safety rests on none of these: they trade speed for memory, and patience for pauses."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for small, large, times in _WITHIN:
            if getattr(self, small) * times > getattr(self, large):
                share = "" if times == 1 else f" a {'half' if times == 2 else 'quarter'} of"
                raise Mistake(
                    f"{small} is {getattr(self, small)}, and may be{share} {large} at most, "
                    f"which is {getattr(self, large)}: set {small} lower or {large} higher"
                )

    heartbeat_s: float = 0.2
    """How often a node says that it is there. Its stop costs others one look at the map a beat."""
    gone_after_s: float = 1.2
    """A node whose heartbeat stood still for so long is taken for dead; by nodes that are late themselves, or if it
    was late itself of late, later. Wrongly so costs a handoff, no more. One whose process has ended on the same
    machine is not waited for."""
    handoff_deadline_s: float = 10.0
    """So long does a new owner wait for the closing record of one that is alive, before it opens by force."""
    handoff_poll_s: float = 0.1
    """How often it looks for that record, if no event tells of it. Only during handoffs."""
    handoffs_at_once: int = 12
    """So many partitions are handed to living nodes at the same time; the others are served until it is their turn."""
    still_s: float = 3.0
    """So long must the grid's data have stayed where it is, before partitions follow it to other living nodes."""
    drain_deadline_s: float = 5.0
    """Running turns may finish until then; later they are cancelled, and run again elsewhere."""
    sweep_s: float = 2.0
    """How often each partition's inbox is read for slots that no event told of. Up to five times more rarely, where one
    such look after the other finds none."""
    definitions_sweep_s: float = 20.0
    """The same for definitions; costs one read of all of them. More rarely where there are so many that this would take
    more than a tenth of a node's time."""
    group_messages_max: int = 4096
    """So many messages at most are taken into one journal record."""
    group_bytes_max: int = 4 * 2**20
    """So many bytes of lane slots at most are taken into one journal record; fewer, if `record_bytes_max` is small."""
    record_bytes_max: int = 8 * 2**20
    """No journal record is larger: what would not fit goes into the next ones. Members are slow to store larger values,
    and nodes stand still as they are written."""
    turn_bytes_max: int = 4 * 2**20
    """A turn that leaves more than this in all (its state, what it sends, its answer, the work of its activities) fails
    with `TurnTooLarge`; so does one whose `ctx.once` steps do. Half of `record_bytes_max` at most."""
    image_journal_bytes_min: int = 96 * 1024
    """An image is written before the journal since the last one has outgrown it, and this."""
    image_journal_slots_max: int = 768
    """Or before there are so many slots: an opening reads each of them. Each partition has a share of its own in
    both, from two thirds to all, so that not all images are written at once."""
    chunk_bytes_max: int = 256 * 1024
    """The size of an image's chunks; one grid entry each."""
    state_bytes_max: int = 3 * 2**20
    """A turn that leaves a larger state fails with `StateTooLarge`, unless it was as large before. No more than
    `turn_bytes_max`."""
    answer_bytes_max: int = 2**20
    """A turn whose handler returns more to whom asked fails with `TooLarge`. No more than `turn_bytes_max`."""
    message_bytes_max: int = 2**20
    """The same limit that clients keep, for messages that jobs send."""
    mailbox_messages_max: int = 10_000
    """A job with so many messages waiting takes no more: who sends to it waits, and all others go on. What was on its
    way by then is taken, up to 64 times as many; beyond that, 128 slots more from each client."""
    mailbox_bytes_max: int = 16 * 2**20
    """The same, in bytes; up to eight times as much."""
    outbox_bytes_max: int = 64 * 2**20
    """A partition with so much not known to be stored elsewhere parks the jobs that would send more; messages to topics
    wait in their lanes."""
    turns_at_once_max: int = 10_000
    """Async turns running at the same time on one node."""
    blocking_threads_max: int = 40
    """Blocking turns at work at the same time on one node; others wait, and that is not counted as running. As many
    more threads at most are replaced whose turn was given up and that still run."""
    hung_after_s: float = 10.0
    """A node whose loop has stood still in one handler for so long is ended by its watchdog (exit code 4), or by its
    warden (kill -9) where no thread of it comes to run, for its supervisor to start it again; 0: never. Where `tenure`
    runs the node, that is, not in tests; and not where it has a member of its own, with which all data would end."""
    memory_max_mib: float | None = None
    """A node whose process comes to take more memory than this while its loop stands still in one handler is ended in
    the same way, at once; 0: never. None: nine tenths of what its control group (its container) or `ulimit -v` allows,
    where one of them does set a limit."""
    crash_attempts_max: int = 3
    """A message whose turn was running in so many crashes in a row fails its job."""
    lane_lifetime_s: float = 3600.0
    """A client's lane is forgotten when nothing came for so long; clients leave a lane after a quarter of it."""
    tombstone_s: float = 3600.0
    """The definition of a job that was removed, or of one that never was and somebody sent to, is forgotten after so
    long."""
    dead_letters_max: int = 10_000
    """When a partition keeps so many dead letters, who sends what would become one more waits, as for a full mailbox.
    What was on its way by then is kept, up to 64 times as many; beyond that, 128 slots more from each client, and what
    jobs and topics bring is counted and dropped."""
    dead_letters_bytes_max: int = 16 * 2**20
    """The same, in bytes; up to eight times as much."""
    dead_letters_keep_s: float = 604_800.0
    """A dead letter is kept for so long: a week."""
    remembered_max: int = 500_000
    """Ids of messages that one partition remembers. Clients that would publish with more of them hold back what is for
    the same jobs until some have expired (`remember_s` of a job's type says when)."""
    remembered_bytes_max: int = 64 * 2**20
    """The same in bytes, with the answers to those who asked."""
    instances_max: int = 10_000
    """Idle jobs whose objects are kept in memory, on one node (those with `on_resume` always are)."""
    lost_after_s: float = 5.0
    """A partition whose head stays missing for so long is reported as lost."""
    retry_pause_s: float = 0.05
    """The pause after a grid call that was refused or unknown; doubled up to retry_pause_max_s."""
    retry_pause_max_s: float = 0.5
    """The longest such pause."""
    allow_pickled_jobs: bool = False
    """Run callables that clients sent as pickles: whoever may write to the grid may then run code here. That goes also
    for what was written before: a job with a forged pickle waits while no node runs such jobs, and runs as soon as one
    joins that does. Look at what waits (`tenure jobs state=stuck`) before you start one."""


class ClientSettings(_Checked, frozen=True, kw_only=True):
    """How a client publishes and asks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.message_bytes_max > MESSAGE_BYTES_LIMIT:
            raise Mistake(
                f"message_bytes_max is {self.message_bytes_max}, and may be {MESSAGE_BYTES_LIMIT} at most: "
                "nodes' records hold no larger ones. Keep what is large elsewhere, and publish where it is"
            )

    publish_deadline_s: float = 30.0
    """Publishing waits so long, then raises `Backlogged`."""
    ask_deadline_s: float = 30.0
    """All other calls wait so long for their answer, then raise `NotDone`."""
    window_slots: int = 64
    """Slot n of a lane is written only when slot n - window is consumed."""
    batch_messages_max: int = 2048
    """So many messages at most are written into one slot."""
    batch_bytes_max: int = 512 * 1024
    """So many bytes at most, but for one message that is larger."""
    buffer_bytes_max: int = 64 * 2**20
    """Messages that wait for the grid, in all; publishing waits when there are more."""
    message_bytes_max: int = 2**20
    """A larger message is refused at the caller. No more than 2 MiB: nodes' records have room for those."""
    lane_lifetime_s: float = 3600.0
    """The nodes' setting of the same name."""
    tombstone_s: float = 3600.0
    """The nodes' setting of the same name: what a client began to schedule so long ago, without hearing what became of
    it, it does not try again."""
    reply_poll_s: float = 0.25
    """An answer whose event was lost is found after about so long."""
    retry_pause_s: float = 0.05
    """The pause after a grid call that was refused or unknown; doubled up to retry_pause_max_s."""
    retry_pause_max_s: float = 0.5
    """The longest such pause."""
