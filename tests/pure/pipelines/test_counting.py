"""Counting lines by bytes agrees with how readers of parts of a file share its lines."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.jobs.pipelines import counting
from tenure.jobs.pipelines.counting import line_starts

texts = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"bc"]), max_size=40).map(b"".join)


def begins_of_lines(data):
    """Straight from the definition: a line begins at 0, and behind each end of a line, if anything is there."""
    begins, at = [0], 0
    while at < len(data):
        width = 2 if data[at : at + 2] == b"\r\n" else 1
        if data[at : at + width] in (b"\n", b"\r", b"\r\n"):
            begins.append(at + width)
        at += width
    return [begin for begin in begins if begin < len(data)]


@settings(deadline=None)
@given(texts, st.lists(st.integers(1, 60), max_size=5), st.sampled_from([1, 3, 2**20]))
def test_lines_before_a_position(tmp_path_factory, data, cuts, chunk_bytes):
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(data)
    positions = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    usual, counting.CHUNK_BYTES = counting.CHUNK_BYTES, chunk_bytes
    try:
        found = list(line_starts(path, positions))
    finally:
        counting.CHUNK_BYTES = usual
    begins = begins_of_lines(data)
    assert found == [sum(begin <= position for begin in begins) for position in positions]
    shares = [end - begin for begin, end in pairwise([0, *found])]
    assert sum(shares) == len(begins) == len(data.decode().splitlines())
