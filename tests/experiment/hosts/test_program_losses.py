# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs' RNICs leave of losses, as tables of a run."""

import pytest

from softroce_lab import topology
from softroce_lab.experiment.hosts import program_records
from softroce_lab.programs.device.device import gids
from tests.results.losses_made import BEGUN_NS, HERE, PEER_QPN, QPN, THERE, ended, record, write


@pytest.fixture(scope="module")
def plan():
    return topology.load("two-hosts")


def recoveries(recorded):
    [part] = list(recorded)
    return [
        dict(zip(part, row, strict=True))
        for row in zip(*(column.tolist() for column in part.values()), strict=True)
    ]


def test_a_message_and_what_was_done(plan, tmp_path):
    messages, recorded, missed = ended(plan, tmp_path, {
        "h1": [
            record("nak_received", 20, psn=5, **HERE),
            record("retransmit", 21, psn=5, last_psn=7, code=1, **HERE),
            record("message", 30, posted_us=1, sent_us=10, psn=0, last_psn=7, bytes=8192,
                   number=3, **HERE),
            record("left_out", number=9),
        ],
        "h2": [record("nak_sent", 15, psn=5, **THERE)],
    })  # fmt: skip
    assert missed == 9
    row = {name: column[0] for name, column in messages.items()}
    assert row == {
        "source": "h1", "destination": "h2", "program": "ib_write_bw", "opcode": "RDMA_WRITE",
        "process": 77, "rank": 3, "qpn": QPN, "peer_qpn": PEER_QPN, "message": 3, "bytes": 8192,
        "psn": 0, "last_psn": 7, "status": 0, "posted_ns": 1000, "sent_ns": 10_000,
        "completed_ns": 30_000,
    }  # fmt: skip
    found = [
        (r["time_ns"], r["host"], r["event"], r["reason"], r["psn"]) for r in recoveries(recorded)
    ]
    assert found == [
        (15_000, "h2", "nak_sent", "", 5),
        (20_000, "h1", "nak_received", "", 5),
        (21_000, "h1", "retransmit", "nak", 5),
    ]
    ends = {(r["src"], r["dst"], r["qpn"]) for r in recoveries(recorded)}
    assert ends == {("10.0.0.1", "10.0.0.2", PEER_QPN)}


def test_a_peer_by_ipv6_is_the_same_host(plan, tmp_path):
    number = int(gids(plan.node("h2").ports[0])[1])
    there = {"remote_high": number >> 64, "remote_low": number & (1 << 64) - 1}
    messages, _, _ = ended(
        plan, tmp_path, {"h1": [record("message", posted_us=1, **(HERE | there))]}
    )
    assert messages["destination"].tolist() == ["h2"]


def test_a_torn_record_and_a_strange_file_are_left_out(plan, tmp_path):
    losses = program_records.ProgramLosses(plan, ["h1"], tmp_path)
    whole = [record("message", posted_us=1, **HERE), record("message", posted_us=2, **HERE)]
    write(tmp_path, "h1", whole, more=whole[0].tobytes()[:-1])
    (tmp_path / "losses" / "h1" / "78.softroce0.strange").write_bytes(b"x" * 160)
    messages, _, _ = losses.end(BEGUN_NS, {})
    assert messages["posted_ns"].tolist() == [1000, 2000]
