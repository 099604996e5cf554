"""A history as a frame and as a table for a notebook."""

from __future__ import annotations

import numpy as np

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
