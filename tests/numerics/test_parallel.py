import threading

import numpy as np
import pytest

from fedns.numerics import parallel


def test_segments_cover_every_row_once_and_stay_within_clients():
    starts, stops = np.array([0, 5, 6, 40]), np.array([5, 6, 40, 100])
    segments = parallel.cut(starts, stops, 16)
    covered = np.concatenate([np.arange(a, b) for a, b in zip(segments.first, segments.last, strict=True)])
    np.testing.assert_array_equal(covered, np.arange(100))
    assert (segments.last - segments.first).max() == 16
    assert (segments.first >= starts[segments.client]).all() and (segments.last <= stops[segments.client]).all()
    np.testing.assert_array_equal(segments.size, (stops - starts)[segments.client])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_parts_cover_every_segment_once(threads):
    segments = parallel.cut(np.arange(0, 900, 9), np.arange(9, 909, 9))
    seen = np.zeros(segments.number, dtype=int)

    def work(low, high):
        seen[low:high] += 1

    with parallel.threads(threads):
        parallel.for_each_part(segments, work, 10**6)
    assert (seen == 1).all()


def test_little_work_stays_on_the_callers_thread():
    segments = parallel.cut(np.arange(4), np.arange(1, 5))
    calls = []
    with parallel.threads(2):
        parallel.for_each_part(segments, lambda low, high: calls.append((low, high, threading.current_thread())), 10)
    assert calls == [(0, 4, threading.main_thread())]


def test_an_error_in_a_part_reaches_the_caller():
    segments = parallel.cut(np.arange(4), np.arange(1, 5))

    def work(low, high):
        raise RuntimeError("broken part")

    with parallel.threads(2), pytest.raises(RuntimeError, match="broken part"):
        parallel.for_each_part(segments, work, 10**6)


def test_merging_sums_the_segments_of_each_client():
    segments = parallel.cut(np.array([0, 10]), np.array([10, 12]), 4)
    partial = np.arange(segments.number * 2.0).reshape(-1, 2)
    merged = parallel.merge(partial, segments, 2)
    np.testing.assert_array_equal(merged, [partial[:3].sum(axis=0), partial[3]])


def test_clients_are_mapped_in_order_and_errors_reach_the_caller():
    def work(client):
        if client == 7:
            raise RuntimeError("broken client")
        return client**2

    for count in (1, 2, 5):
        with parallel.threads(count):
            assert parallel.map_clients(work, 6) == [0, 1, 4, 9, 16, 25]
            assert parallel.map_clients(work, 0) == []
            with pytest.raises(RuntimeError, match="broken client"):
                parallel.map_clients(work, 9)
