# SPDX-License-Identifier: GPL-2.0-or-later
"""`csa_ud`: what is counted and recorded of parity."""

import json

import pytest

from softroce_lab.telemetry.event_log import EventLog
from tests.transports.pair_rig import DATA, PairRig
from tests.transports.sabotage import lose

KEY = (1, 2, 3)
CHUNK = 2048 - 40
PACKETS = 60
ONE_WAY_NS = 100_000


def make_rig(parity="2", **options):
    """Paths of 100 us each way, a packet each 2 us."""
    options = {"parity": parity} | options
    settings = {"paths": 4, "initial_rtt_ns": 2 * ONE_WAY_NS}
    rig = PairRig("csa_ud", options=options, **settings)
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = ONE_WAY_NS, 2_000
    return rig


def transfer(rig, packets=PACKETS):
    rig.transfer(KEY, packets * CHUNK)
    rig.finish()
    rig.check()
    return rig.counters(0), rig.counters(1)


def lose_first(rig, *packets):
    for packet in packets:
        lose(rig, 0, kind=DATA, index_first=packet, index_last=packet, limit=1)


def test_parity_without_losses_counts_as_nothing_else():
    rig = make_rig()
    sent, received = transfer(rig)
    assert sent["tx_parity"] == 2
    assert sent["tx_data"] == PACKETS + 2
    assert received["rx_late_parity"] == 2
    assert received["rx_duplicate"] == received["rx_needless"] == received["rx_restored"] == 0
    without = make_rig(parity="0")
    transfer(without)
    # Parity stands in for the probe: there is less control, not more.
    assert sent["tx_control_bytes"] <= without.counters(0)["tx_control_bytes"]


def test_a_tail_that_parity_restores_is_neither_needless_nor_spurious():
    rig = make_rig()
    lose_first(rig, PACKETS - 1)
    sent, received = transfer(rig)
    assert received["rx_restored"] == 1
    assert received["tx_nack"] == sent["tx_retransmitted"] == 0
    assert received["rx_needless"] == received["rx_duplicate"] == 0


def test_a_retransmission_of_what_was_restored_meanwhile_is_needless():
    """A later number shows the loss before the parity leaves."""
    rig = make_rig()
    lose_first(rig, 0)
    sent, received = transfer(rig)
    assert received["rx_restored"] == 1
    assert sent["tx_retransmitted"] == received["rx_needless"] == 1
    assert received["rx_duplicate"] == 0
    assert rig.sides[1].completions[-1].duplicates == 0


def test_a_nack_for_an_earlier_packet_does_not_name_what_was_restored():
    """Parity covers the last 64 packets."""
    rig = make_rig()
    lose_first(rig, 3, 79)
    sent, received = transfer(rig, 80)
    assert received["rx_restored"] == 1
    assert sent["tx_retransmitted"] == 1


def test_parity_that_comes_twice_is_no_duplicate():
    rig = make_rig()
    rig.cables[0].duplicate = 2**64 - 1  # every packet
    _, received = transfer(rig)
    assert received["rx_duplicate"] == PACKETS
    assert received["rx_late_parity"] == 4


@pytest.mark.parametrize(("options", "rows"), [({}, 2), ({"parity_idle": False}, 4)])
def test_while_another_message_waits_parity_is_worth_nothing_without_losses(options, rows):
    rig = make_rig(**options)
    rig.transfer((0, 0, 0), PACKETS * CHUNK)
    rig.transfer(KEY, 200 * CHUNK)  # takes two round trips
    rig.finish()
    assert rig.counters(0)["tx_parity"] == rows


def test_the_log_names_block_rows_and_reason(tmp_path):
    rig = make_rig()
    path = tmp_path / "events.jsonl"
    logs = [EventLog(side.endpoint, path, host=str(i)) for i, side in enumerate(rig.sides)]
    lose_first(rig, 50)
    transfer(rig, 70)
    for log in logs:
        log.close()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    (parity,) = [each for each in found if each["event"] == "parity_sent"]
    (restored,) = [each for each in found if each["event"] == "restored"]
    name = {"operation": 1, "step": 2, "message": 3}
    assert parity.items() >= {"host": "0", "reason": "idle", "loss_ppm": 0, **name}.items()
    assert (parity["index"], parity["last_index"], parity["packets"]) == (6, 69, 2)
    assert restored.items() >= {"host": "1", "index": 50, **name}.items()
