"""What a site says when a run is opened."""

import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

from fedns.core.shards import Shards
from fedns.federation.protocol.packets import ANSWER, OPEN, Packet
from fedns.federation.site.permissions import Permissions


def with_a_rare_level() -> Shards:
    """Two sites; at the first, two of 150 rows have a level of the last column that no other row there has."""
    shards = make_shards(sizes=(150, 150))
    features = shards.rows.values.copy()
    features[:150, -1] = 0.0
    features[[3, 70], -1] = 1.0
    return Shards.from_arrays(features, shards.targets, [150, 150])


@pytest.mark.parametrize(("rule", "columns"), [("blank", 1), ("show", 0)])
def test_a_site_that_replaces_rare_levels_says_so(rule, columns, tmp_path):
    permissions = Permissions(rare_levels=rule, job_seed=True)
    federation = Federation(with_a_rare_level(), tmp_path, run_of("fednewton", 2, rounds=1), permissions=permissions)
    federation.start()
    first, second = federation.cohort.link.statuses
    assert (first.blanked_columns, second.blanked_columns) == (columns, 0)
    assert ("not quite the pooled one" in first.note) == bool(columns) and second.note == ""
    assert [event["site"] for event in federation.events if event["event"] == "blanked"] == ["site-0"] * columns


@pytest.mark.parametrize(
    "said", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"blanked_columns": -1}', b'{"blanked_columns": "1"}']
)
def test_what_cannot_be_read_is_refused(said, tmp_path):
    federation = Federation(make_shards(sizes=(150, 150)), tmp_path, run_of("fednewton", 2, rounds=1))
    honest = federation.transport.services["site-1"]

    def forged(frame: bytes) -> bytes:
        packet = Packet.decode(frame)
        return packet.reply(ANSWER, said).encode() if packet.kind == OPEN else honest(frame)

    federation.transport.services["site-1"] = forged
    with pytest.raises(Exception, match="site 'site-1': what it said when the run was opened cannot be read"):
        federation.start()
