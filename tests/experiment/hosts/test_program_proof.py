# SPDX-License-Identifier: GPL-2.0-or-later
"""Which counters of programs prove that a transport other than RC carried their data."""

import pytest

from softroce_lab.experiment.hosts import program_proof
from softroce_lab.experiment.hosts.program_records import OfProcess
from softroce_lab.telemetry.counters_file import Qp, Snapshot

OVER_RC = (
    "h1: prog (process 7, rank 2) sent 5 packets over rc, not over csa_ud: "
    "leave SOFTROCE_TRANSPORT in its environment as it is"
)
IDLE = "h1: prog (process 7, rank 2) has RC queue pairs, and csa_ud carried nothing for them"


def process(*qps, **counts):
    """A process with queue pairs of these types; of each `TYPE`, or `(TYPE, its tx_connected)`."""
    pairs = (each if isinstance(each, tuple) else (each, 0) for each in qps)
    found = tuple(
        Qp(0x20 + at, type_, "RTS", 1, "10.0.0.2", {"tx_connected": sent})
        for at, (type_, sent) in enumerate(pairs)
    )
    all_counts = {"tx_connected": 0, "tx_data": 0, "rx_data": 0} | counts
    return OfProcess("prog", Snapshot(1, 7, len(found), all_counts, found, rank=2))


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (process("RC", tx_data=9), []),
        (process("RC", rx_data=9), []),  # the peer writes
        (process(("RC", 5), tx_connected=5), [OVER_RC]),
        (process(("RC", 5), tx_connected=5, tx_data=9), [OVER_RC]),
        (process(("UC", 3), ("RC", 5), tx_connected=8, tx_data=9), [OVER_RC]),
        (process(("UC", 3), "RC", tx_connected=3, tx_data=9), []),
        (process("RC"), [IDLE]),
        (process("UD"), []),
        (process(), []),
    ],
)
def test_counters_of_a_process(found, wrong):
    assert list(program_proof.problems("csa_ud", {"h1": [found]}, ["h1"])) == wrong


def test_a_host_that_need_not_send_may_be_idle():
    others = {"h1": [process("RC")], "h2": [process("RC", tx_data=1)]}
    assert list(program_proof.problems("csa_ud", others, ["h2"])) == []
