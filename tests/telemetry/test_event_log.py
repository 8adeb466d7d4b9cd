# SPDX-License-Identifier: GPL-2.0-or-later

import pytest

from softroce_lab import _native
from softroce_lab.errors import RunError, UserError
from softroce_lab.telemetry import counters_file, event_log
from softroce_lab.telemetry.event_log import EventLog
from softroce_lab.verbs import Context
from tests.native.connected import CMP_SWAP, ERR, READ, SEND, UC, WRITE, Duo
from tests.transports.pair_rig import PairRig, threshold


@pytest.fixture
def path(tmp_path):
    return event_log.create(tmp_path / "log.jsonl")


def logged(duo, path, which=0):
    return EventLog(duo.sides[which].endpoint, path, host="ab"[which])


def misfit(line):
    """What is wrong with a line, by the schema; None: nothing."""
    members = frozenset(line) - event_log.COMMON - {"host", "run"}
    if not frozenset(line) >= event_log.COMMON:
        return f"without {sorted(event_log.COMMON - frozenset(line))}"
    known = event_log.EVENTS.get(line["event"])
    if known is None:
        return f"no event is called {line['event']!r}"
    return None if members in known else f"{line['event']} with {sorted(members)}"


def lines(path, event=None, host=None):
    found = list(event_log.read(path))
    assert [misfit(line) for line in found] == [None] * len(found)
    return [
        line
        for line in found
        if event in (None, line["event"]) and host in (None, line.get("host"))
    ]


def distance(last, first):
    return (last - first) % (1 << 24) + 1


def test_a_message_from_post_to_completion(path):
    duo = Duo(path_mtu=1024)
    logs = [logged(duo, path, which) for which in range(2)]
    near, far = duo.sides
    far.post_receive((0, 4096), wr_id=7)
    near.post_send(SEND, (0, 3000), wr_id=1 << 63)
    duo.run()
    assert [log.close().lost for log in logs] == [0, 0]
    first, *reported, last = lines(path, host="a")
    assert (first["event"], first["schema_version"], last["event"]) == (
        "log_opened",
        event_log.SCHEMA_VERSION,
        "log_closed",
    )
    assert [line["event"] for line in reported] == [
        "post_send",
        "sent",
        "ack_received",
        "completion",
    ]
    post, sent, ack, completion = reported
    assert (post["opcode"], post["bytes"], post["wr_id"], post["qp"]) == (
        "SEND", 3000, 1 << 63, near.number,
    )  # fmt: skip
    assert distance(sent["last_psn"], sent["psn"]) == 3
    assert ack["psn"] == sent["last_psn"]
    assert (completion["status"], completion["signaled"]) == ("SUCCESS", True)
    _, *reported, _ = lines(path, host="b")
    assert [line["event"] for line in reported] == ["post_recv", "completion", "ack_sent"]
    assert (reported[1]["opcode"], reported[1]["wr_id"], reported[1]["bytes"]) == ("RECV", 7, 3000)


def test_retransmissions_are_told_with_their_reason_and_add_up(path):
    duo = Duo(seed=4)
    logs = [logged(duo, path, which) for which in range(2)]
    duo.both(loss=1 << 60)
    near, far = duo.sides
    for number in range(60):
        near.post_send(WRITE, (0, 20000), remote_addr=far.address, rkey=far.key, wr_id=number)
    duo.run()
    for log in logs:
        log.close()
    retransmitted = lines(path, "retransmit", "a")
    counts = counters_file.parse(_native.statistics(near.endpoint)).counts
    assert {line["reason"] for line in retransmitted} <= {"timeout", "nak"}
    assert len(retransmitted) == counts["req_went_back"]
    assert len(lines(path, "timeout", "a")) == counts["local_ack_timeout_err"]
    assert len(lines(path, "nak_received", "a")) == counts["packet_seq_err"] > 0
    # An acknowledgement that comes meanwhile cuts it short.
    total = sum(distance(line["last_psn"], line["psn"]) for line in retransmitted)
    assert 0 < counts["tx_connected_retransmitted"] <= total
    sent = lines(path, "sent", "a")
    assert sum(distance(line["last_psn"], line["psn"]) for line in sent) == 60 * 20
    nak, *_ = lines(path, "nak_sent", "b")
    assert nak["nak"] == "psn_sequence_error"
    missed = list(lines(path, "out_of_sequence", "b"))
    assert nak["psn"] in {line["expected_psn"] for line in missed}


def test_receivers_that_are_not_ready(path):
    duo = Duo(rnr_retry=1, min_rnr_timer=1)
    logs = [logged(duo, path, which) for which in range(2)]
    duo.sides[0].post_send(SEND, (0, 10))
    duo.run()
    for log in logs:
        log.close()
    assert [line["timer_ns"] for line in lines(path, "rnr_nak_received", "a")] == [10_000] * 2
    assert len(lines(path, "rnr_nak_sent", "b")) == 2
    assert [line["reason"] for line in lines(path, "retransmit", "a")] == ["rnr_nak"]
    (completion,) = lines(path, "completion", "a")
    assert completion["status"] == "RNR_RETRY_EXC_ERR"
    (state,) = lines(path, "state", "a")
    assert (state["from"], state["to"]) == ("RTS", "ERR")


def test_reads_atomics_and_duplicates(path):
    duo = Duo(seed=9)
    logs = [logged(duo, path, which) for which in range(2)]
    near, far = duo.sides
    near.post_send(READ, (0, 5000), remote_addr=far.address, rkey=far.key)
    near.post_send(CMP_SWAP, (0, 8), remote_addr=far.address, rkey=far.key)
    duo.run()
    for log in logs:
        log.close()
    read, atomic = lines(path, "response_sent", "b")
    assert distance(read["last_psn"], read["psn"]) == 5
    assert atomic["psn"] == atomic["last_psn"] == (read["last_psn"] + 1) % (1 << 24)
    assert [line["opcode"] for line in lines(path, "completion", "a")] == ["RDMA_READ", "COMP_SWAP"]


def test_what_is_dropped_says_why(path):
    duo = Duo(UC)
    log = logged(duo, path, 1)
    duo.sides[0].post_send(SEND, (0, 10))
    duo.run()
    assert duo.sides[1].modify(1, qp_state=ERR) == 0
    duo.sides[0].post_send(SEND, (0, 10))
    duo.run()
    log.close()
    assert [line["reason"] for line in lines(path, "dropped")] == [
        "rx_uc_dropped",
        "rx_qp_not_ready",
    ]


def test_striped_messages_are_told_by_their_names(path):
    rig = PairRig("csa_ud", seed=2)
    for cable in rig.cables:
        cable.loss = threshold(0.05)
    logs = [EventLog(side.endpoint, path, host=str(i)) for i, side in enumerate(rig.sides)]
    rig.transfer((1, 2, 3), 400_000)
    rig.finish()
    for log in logs:
        log.close()
    sent, received = lines(path, host="0"), lines(path, host="1")
    assert {line["event"] for line in sent} >= {
        *("post_send", "sent", "control_received", "loss", "retransmit", "completion"),
    }
    assert {line["event"] for line in received} >= {
        *("post_recv", "first_packet", "receive_complete", "control_sent", "completion"),
    }
    names = {
        (line["operation"], line["step"], line["message"])
        for line in sent + received
        if "message" in line
    }
    assert names == {(1, 2, 3)}
    retransmitted = sum(line["packets"] for line in sent if line["event"] == "retransmit")
    assert retransmitted == rig.counters(0)["tx_retransmitted"] > 0
    assert {line["reason"] for line in sent if line["event"] == "retransmit"} == {"policy"}
    losses = [line for line in sent if line["event"] == "loss"]
    assert {line["reason"] for line in losses} <= {"gap", "probe", "timer"}
    assert sum(line["packets"] for line in losses) == retransmitted


# ---------------------------------------------------------------- what is lost is counted


def test_a_file_that_takes_no_more(path):
    duo = Duo()
    native = _native.open_event_log(duo.sides[0].endpoint, str(path), "", most_bytes=2000)
    for _ in range(200):
        duo.sides[1].post_receive((0, 10))
        duo.sides[0].post_send(SEND, (0, 10))
    duo.run()
    _native.close_event_log(duo.sides[0].endpoint, native)
    assert native.error == 27  # EFBIG
    assert native.written + native.lost >= 600  # posts, sents, completions
    assert native.lost > 0
    assert path.stat().st_size <= 2000


def test_a_full_disk():
    duo = Duo()
    log = EventLog(duo.sides[0].endpoint, "/dev/full")
    duo.sides[0].post_send(SEND, (0, 10))
    totals = log.close()
    assert (totals.records, totals.lost) == (0, 1)
    assert log.failure == "No space left on device"
    assert str(totals) == "0 events, 1 more were lost"


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="cannot write the event log"):
        event_log.create(tmp_path / "no" / "log")
    with pytest.raises(RunError, match="cannot write the event log"):
        EventLog(Duo().sides[0].endpoint, tmp_path / "no" / "log")


def test_totals_are_those_of_all_that_were_closed(path):
    duo = Duo()
    logs = [logged(duo, path, which) for which in range(2)]
    duo.sides[0].post_send(SEND, (0, 10))
    closed = [log.close() for log in logs]
    assert event_log.totals(path).records == sum(totals.records for totals in closed) == 1
    assert closed[0] == logs[0].close()  # a second time


def test_a_torn_last_line_is_left_out(path):
    path.write_bytes(b'{"time_ns":1,"event":"a"}\n{"time_')
    assert list(event_log.read(path)) == [{"time_ns": 1, "event": "a"}]


# ---------------------------------------------------------------- how it is switched on


def test_nothing_is_logged_unless_asked_for(path, monkeypatch):
    monkeypatch.delenv(event_log.VARIABLE, raising=False)
    with Context(Duo().sides[0].endpoint):
        pass
    assert path.read_bytes() == b""


def test_a_context_logs_where_it_is_told_or_the_environment_says(path, tmp_path, monkeypatch):
    other = event_log.create(tmp_path / "other.jsonl")
    monkeypatch.setenv(event_log.VARIABLE, str(path))
    with Context(Duo().sides[0].endpoint):
        pass
    with Context(Duo().sides[0].endpoint, event_log=other, name="h9"):
        pass
    for file, host in ((path, None), (other, "h9")):
        assert [(line["event"], line.get("host")) for line in lines(file)] == [
            ("log_opened", host),
            ("log_closed", host),
        ]


def test_lines_that_do_not_fit():
    assert "no event" in misfit({"time_ns": 1, "event": "x"})
    assert "without" in misfit({"event": "lost"})
    assert "timeout with" in misfit({"time_ns": 1, "event": "timeout", "psn": 1})
