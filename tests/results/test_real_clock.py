# SPDX-License-Identifier: GPL-2.0-or-later
"""The log of recovery of a run on the real clock has the schema of the virtual clock."""

import collections
import os

import pyarrow.parquet as pq
import pytest

from softroce_lab.results.incidents import What
from softroce_lab.results.recorded import Recorded
from softroce_lab.results.story import Explained
from softroce_lab.telemetry.recoveries import EVENTS
from tests import patience
from tests.results.made import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
STRIPED = ("csa_ud", "ud_rto", "irn", "srnic", "sdr_sr+ud")
TRANSPORTS = (*STRIPED[:-1], "{name: sdr_sr, framing: ud}", patience.RC)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A ring in which packets to one host are lost."""
    return run(
        "point-to-point", tmp_path_factory.mktemp("real"), "clock=real", "deadline=60s",
        "topology={generator: {kind: star, hosts: 3}}", "seeds=[7]", "payload=none",
        "workload={kind: ring-all-reduce, bytes: 384KiB, message: 64KiB}",
        "faults=[{name: lossy, links: '*->h2', loss: 4%}]",
        f"transports=[{', '.join(TRANSPORTS)}]",
    )  # fmt: skip


def test_the_schema_is_that_of_the_virtual_clock(made, ring_run):
    schemas = [pq.read_schema(each / "recovery.parquet") for each in (made, ring_run)]
    assert schemas[0] == schemas[1]
    table = pq.read_table(made / "recovery.parquet").to_pydict()
    assert set(table["event"]) <= set(EVENTS)
    assert min(table["time_ns"]) > 0


@pytest.mark.parametrize("name", [f"{each}/7" for each in (*STRIPED, "rc")])
def test_each_loss_has_its_decision_and_its_retransmission(made, name):
    recorded = Recorded(made)
    known = Explained.of(recorded, recorded.run(name))
    lost = 0
    for row, found in known.of_message.items():
        for each in found:
            if each.what is not What.DROP or each.kind not in ("data", "other"):
                continue
            lost += 1
            if any(e.what is What.SENT_AGAIN and e.about(each.first) for e in found
                   if e.time_ns < each.time_ns):  # fmt: skip
                continue  # perhaps it had arrived
            later = [e for e in found if e.time_ns >= each.time_ns and e.about(each.first)]
            kinds = [e.what for e in later]
            if What.RESTORED in kinds:
                continue
            assert What.DECISION in kinds
            assert What.SENT_AGAIN in kinds[kinds.index(What.DECISION) :]
            why = next(e.why for e in later if e.what is What.DECISION)
            assert why not in ("", "policy")
        tale = known.story(row)
        if name != "rc/7":  # whose table counts packets otherwise
            assert tale.sent_again == int(known.messages.columns["retransmitted"][row])
    assert lost > 3
    assert lost <= len(known.lost)  # which may have acknowledgements of rc: they name no message
    assert lost == len(known.lost) or name == "rc/7"


def test_nacks_of_csa_ud_are_about_messages_with_losses(made, ring_run):
    """On both clocks: sent by the receiver, then received by the sender."""
    for directory, name in ((made, "csa_ud/7"), (ring_run, "csa_ud/1")):
        recorded = Recorded(directory)
        known = Explained.of(recorded, recorded.run(name))
        whys = collections.Counter(e.why for e in known.incidents if e.what is What.CONTROL)
        assert whys["nack"] > 3
        assert whys["nack_received"] > 3
        for row, found in known.of_message.items():
            sent = [e for e in found if e.what is What.CONTROL and e.why == "nack"]
            received = [e for e in found if e.what is What.CONTROL and e.why == "nack_received"]
            assert {e.where for e in sent} <= {known.messages.columns["destination"][row]}
            assert {e.where for e in received} <= {known.messages.columns["source"][row]}
            if received:
                assert min(e.time_ns for e in sent) < min(e.time_ns for e in received)
