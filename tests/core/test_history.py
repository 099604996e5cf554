"""A history as a frame and as a table for a notebook."""

from __future__ import annotations

import numpy as np
import pytest

import fedns


def test_a_history_as_a_frame_and_in_a_notebook():
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 3))
    shards = fedns.split(rows, np.where(rows[:, 0] + random.normal(size=60) > 0, 1.0, -1.0), 3)
    history = fedns.simulate(fedns.FedNewton(), fedns.Problem(), shards, rounds=4)
    frame = history.to_frame()
    assert list(frame.index) == [0, 1, 2, 3, 4] and frame["objective"].tolist() == history.objective.tolist()
    text = history._repr_html_()
    assert text.count("<tr>") == 6 and text.startswith(f"<p>{history.method}: {history.stop_reason}</p><table>")


@pytest.mark.parametrize(("gap", "round"), [(2.0, 1), (1.0, 1), (0.9, 2), (0.5, 2), (0.1, 4), (0.0999, None)])
def test_the_first_round_whose_gap_is_small_enough(gap, round):
    """Rounds without an optimum to compare with have no gap, and one that comes back after a rise is not the first."""
    records = [fedns.Record(t, t, 0.0, 0, 0, 1.0, left, 1.0) for t, left in enumerate((None, 1.0, 0.5, None, 0.1, 0.7, 0.1))]
    history = fedns.History("m", records, np.zeros(1), fedns.Ending.OUT_OF_ROUNDS, "used all rounds")
    found = history.first_round_below(gap)
    assert (found and found.round) == round
