# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab import _native
from softroce_lab.telemetry import counters, counters_file
from tests.native.connected import READ, SEND, Duo

ENGINE = counters_file.parse(_native.statistics(Duo().sides[0].endpoint))


@pytest.mark.parametrize("table", [counters.MLX5, counters.RXE, counters.PROCESS_PORT])
def test_every_counter_is_made_of_counters_that_there_are(table):
    for counter in table:
        assert set(counter.of) | set(counter.less) <= set(ENGINE.counts), counter.name
        if counter.per_qp and table is not counters.PROCESS_PORT:
            assert set(counter.of) | set(counter.less) <= set(ENGINE.qps[0].counts), counter.name


def test_data_is_counted_in_words_of_four_octets():
    counted = counters.of_process_port(
        {"octets_sent": 4099, "octets_received": 3, "frames_sent": 2, "frames_received": 1}
    )
    assert counted == {
        "port_xmit_data": 1024,
        "port_rcv_data": 0,
        "port_xmit_packets": 2,
        "port_rcv_packets": 1,
    }


def test_what_is_less_is_taken_away():
    counts = dict.fromkeys(ENGINE.counts, 0) | {"frames_received": 9, "rx_not_roce": 2}
    assert counters.of_port(counts)["rcvd_pkts"] == 7


# ---------------------------------------------------------------- what they count


def of(side):
    (qp,) = counters_file.parse(_native.statistics(side.endpoint)).qps
    return counters.of_qp(qp.counts) | qp.counts


def test_nothing_is_counted_of_a_quiet_connection():
    assert sum(of(Duo().sides[0]).values()) == 0


def test_losses_show_at_both_ends():
    duo = Duo(seed=3)
    duo.both(loss=1 << 60)  # one in 16
    near, far = duo.sides
    for number in range(100):
        far.post_receive((0, 8000))
        near.post_send(SEND, (0, 8000), wr_id=number)
    duo.run()
    requester, responder = of(near), of(far)
    assert requester["sends_completed"] == responder["receives_completed"] == 100
    assert responder["out_of_sequence"] > 0
    assert 0 < requester["packet_seq_err"] <= responder["tx_nak_sequence"]
    assert requester["rcvd_seq_err"] == requester["packet_seq_err"]
    assert requester["completer_retry_err"] <= (
        requester["packet_seq_err"] + requester["local_ack_timeout_err"]
    )
    assert requester["tx_connected"] - requester["tx_connected_retransmitted"] == 800
    assert responder["rx_payload_bytes"] == 800_000
    assert requester["req_cqe_error"] == responder["resp_cqe_error"] == 0


def test_receives_that_come_late_show_at_both_ends():
    duo = Duo(rnr_retry=2, min_rnr_timer=1)
    near, far = duo.sides
    near.post_send(SEND, (0, 100))
    near.post_send(SEND, (0, 100))
    duo.run()
    requester, responder = of(near), of(far)
    assert requester["rnr_nak_retry_err"] == responder["send_rnr_err"] == 3
    assert responder["out_of_buffer"] == 3
    assert requester["req_rnr_retries_exceeded"] == requester["req_cqe_flush_error"] == 1
    assert requester["req_cqe_error"] == 2


def test_what_a_peer_may_not_do_shows_at_both_ends():
    duo = Duo()
    near, far = duo.sides
    near.post_send(READ, (0, 4096), remote_addr=far.address + (1 << 20), rkey=far.key)
    far.post_receive((0, 1))
    duo.run()
    requester, responder = of(near), of(far)
    assert requester["req_remote_access_errors"] == responder["resp_remote_access_errors"] == 1
    assert responder["resp_cqe_flush_error"] == responder["resp_cqe_error"] == 1


def test_a_peer_that_is_gone_uses_up_the_retries():
    duo = Duo(timeout=1, retry_cnt=3)
    duo.both(loss=(1 << 64) - 1)
    near, _ = duo.sides
    near.post_send(SEND, (0, 100))
    duo.run()
    counted = of(near)
    assert counted["local_ack_timeout_err"] == 4
    assert counted["req_transport_retries_exceeded"] == counted["retry_exceeded_err"] == 1


def test_an_rnic_counts_what_its_queue_pairs_count():
    duo = Duo(seed=5)
    duo.both(loss=1 << 60)
    near, far = duo.sides
    for _ in range(20):
        near.post_send(READ, (0, 9000), remote_addr=far.address, rkey=far.key)
    duo.run()
    for side in duo.sides:
        snapshot = counters_file.parse(_native.statistics(side.endpoint))
        (qp,) = snapshot.qps
        assert {name: snapshot.counts[name] for name in qp.counts} == qp.counts
    assert of(far)["rx_read_requests"] == 20
