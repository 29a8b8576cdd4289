"""The order through bucket files against a sort in memory."""

from data_prep.hashing import keyed_hash
from data_prep.shuffle import sorted_by_key


def test_buckets_do_not_change_the_order(tmp_path):
    keyed = [(keyed_hash(0, number), f"line {number} ü") for number in range(1000)]
    keyed += [(0, "b"), (0, "a"), (2**64 - 1, "last")]
    expected = [line for _, line in sorted(keyed)]
    for lines_per_bucket in (1, 7, 100, 5000):
        got = list(sorted_by_key(iter(keyed), len(keyed), tmp_path, lines_per_bucket))
        assert got == expected, lines_per_bucket
        assert not list(tmp_path.iterdir())


def test_one_bucket_at_a_time_is_read(tmp_path):
    lines = sorted_by_key(((keyed_hash(0, n), str(n)) for n in range(100)), 100, tmp_path, lines_per_bucket=10)
    next(lines)
    assert len(list(tmp_path.iterdir())) == 9
