"""All mutants, by name; those that change nothing that anybody promises; and those that are still to be found."""

from pathlib import Path

from tests.mutants.mutant import Mutant, read

__all__ = ["EQUIVALENT", "MUTANTS", "OPEN"]

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for file in sorted(Path(__file__).parent.glob("*.mutants")) for mutant in read(file)
}
EQUIVALENT: dict[str, str] = {
    "held_senders_stay_held": "the next sweep of the inbox offers what they sent again: only later",
    "forsaken_lanes_are_links": "`begun` sees that the cluster is another one, too",
}
"""name -> why nobody could find it"""
OPEN: frozenset[str] = frozenset(
    {
        "acknowledged_in_an_old_cluster",
        "expired_ids_are_kept",
        "arrived_takes_one_more",
        "arrived_with_gaps",
        "attempts_are_not_replayed",
        "broadcast_misses_the_unborn",
        "catch_up_rings_once",
        "fences_without_incarnation",
        "finishing_is_forgotten",
        "forgets_in_mid_delivery",
        "forgets_on_hearsay",
        "former_clusters_count",
        "ids_are_remembered_for_ever",
        "ids_of_the_removed_are_drafted",
        "launched_while_it_may_run",
        "moved_head_is_foreign",
        "numbers_begin_anew",
        "parameters_unchecked",
        "paused_timers_ring",
        "reached_too_soon",
        "restore_leaves_the_inbox",
        "restored_generations_are_used_again",
        "resumed_timers_are_silent",
        "snapshot_client_waiting_left_out",
        "stale_chunks_by_anyone",
        "steps_never_dropped",
        "subscribers_of_before",
        "sweep_deletes_openings",
        "watermark_on_hearsay",
    }
)
"""Nothing has found them yet where it was looked for. `python -m tests.mutants --write NAME` looks everywhere."""
