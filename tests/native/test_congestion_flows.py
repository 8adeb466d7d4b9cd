# SPDX-License-Identifier: GPL-2.0-or-later
"""Congestion control in flows: notification, pacing and windows of peers and queue pairs."""

import functools
import operator
import struct

import numpy as np
import pytest

from softroce_lab import _native
from tests.native import frames
from tests.native.connected import (
    ADDRESSES,
    RC,
    READ,
    SEND,
    UC,
    WRITE,
    Duo,
)
from tests.transports.pair_rig import MILLISECOND_NS, PairRig

US = 1_000
CNP = 0x81
REPORT = 2  # lab_kind


def bth(frame):
    at = frames.layout(frame).bth_at
    return frame[at : at + frames.BTH]


def opcode(frame):
    return bth(frame)[0]


def destination_qp(frame):
    return int.from_bytes(bth(frame)[5:8], "big")


def sent(pair, side, wanted):
    """When side sent frames of these opcodes, and the frames."""
    return [(at, f) for at, who, f in pair.take_sent() if who == side and opcode(f) in wanted]


def cnp_to(qp, source, destination):
    """A CNP as another implementation would make it."""
    plain = frames.Frame(source_ip=source, destination_ip=destination, opcode=CNP,
                         destination_qp=qp, source_port=0xC000).encode()  # fmt: skip
    at = frames.layout(plain).bth_at + frames.BTH
    # Sixteen reserved bytes in place of the DETH: IP and UDP are eight bytes longer.
    head = bytearray(plain[:at] + bytes(16 + frames.ICRC))
    ip, udp = frames.IP_AT, frames.layout(plain).udp_at
    head[ip + 2 : ip + 4] = (len(head) - ip).to_bytes(2, "big")
    head[udp + 4 : udp + 6] = (len(head) - udp).to_bytes(2, "big")
    return frames.seal(bytes(head))


def check_cnp(frame, qp):
    """IBA annex A17.9.3: BECN, PSN 0, sixteen reserved bytes, and nothing more."""
    at = frames.layout(frame).bth_at
    assert bth(frame) == bytes((CNP, 0, 0xFF, 0xFF, 0x40)) + qp.to_bytes(3, "big") + bytes(4)
    assert frame[at + frames.BTH : -frames.ICRC] == bytes(16)
    assert frame == frames.seal(frame)


# ---------------------------------------------------------------- striped messages


DATA = (frames.UD_SEND_ONLY,)


def rig(name, **settings):
    known = {"window_packets": 64, "base_rtt_ns": 100 * US}
    return PairRig("csa_ud", congestion_control=name, arena_bytes=1 << 23, **known | settings)


def mark_all(made, which=0, service_ns=1 * US):
    made.cables[which].service_time_ns = service_ns
    made.cables[which].mark_from = 0


def test_marks_bring_cnps_one_in_50_us():
    made = rig("dcqcn", cnp_interval_ns=50 * US)
    mark_all(made)
    made.pair.keep_sent()
    made.transfer((1, 0, 0), 2_000_000)
    made.finish()
    made.check()
    cnps = sent(made.pair, 1, (CNP,))
    times = [at for at, _ in cnps]
    gaps = np.diff(times)
    assert len(cnps) > 5
    assert gaps.min() >= 50 * US
    for _, frame in cnps:
        check_cnp(frame, made.sides[0].endpoint.data_qp)
    receiver, sender = made.counters(1), made.counters(0)
    assert receiver["tx_cnp"] == len(cnps) == sender["rx_cnp"]
    assert sender["rx_cnp_ignored"] == 0
    assert receiver["rx_ce"] > len(cnps)
    assert made.sides[0].endpoint.congestion(0)["rate_bps"] < 100_000_000_000


@pytest.mark.parametrize(("name", "named"), [("nscc", 0xFF), ("bdp", 0)])
def test_reports_of_nscc_name_the_paths_that_were_marked(name, named):
    made = rig(name, path_probes=True)
    mark_all(made)
    made.pair.keep_sent()
    made.transfer((1, 0, 0), 400_000)
    made.finish()
    made.check()
    packets = [_native.decode_frame(f, True) for _, who, f in made.pair.take_sent() if who == 1]
    reports = [bytes(each["payload"]) for each in packets if each["kind"] == REPORT]
    marked = [struct.unpack(">2H", body[28:32]) for body in reports]
    assert {paths for _, paths in marked} == {8}
    assert functools.reduce(operator.or_, (bits for bits, _ in marked)) == named


def test_a_cnp_of_a_stranger_is_ignored():
    made = rig("dcqcn")
    made.pair.inject(0, cnp_to(frames.DATA_QP, 0x0A000009, ADDRESSES[0]))
    made.pair.inject(0, cnp_to(0x77, ADDRESSES[1], ADDRESSES[0]))
    assert made.counters(0)["rx_cnp"] == made.counters(0)["rx_cnp_ignored"] == 2
    assert made.sides[0].endpoint.congestion(0)["alpha"] == 1
    assert made.sides[0].endpoint.congestion(0)["rate_bps"] == 100_000_000_000


def test_a_paced_peer_sends_at_its_rate():
    line = 4_000_000_000
    made = rig("dcqcn", line_rate_bps=line)
    made.pair.inject(0, cnp_to(frames.DATA_QP, *reversed(ADDRESSES)))
    made.pair.keep_sent()
    made.transfer((1, 0, 0), 20 * 2008)
    made.finish()
    made.check()
    data = [(at, f) for at, f in sent(made.pair, 0, DATA) if destination_qp(f) == frames.DATA_QP]
    assert len(data) == 20
    full = len(data[0][1]) * 8 * 10**9 / (line // 2)  # of 2114 bytes at 2 Gb/s: 8.456 us
    at = np.array([at for at, _ in data])
    early = at[at < 55 * US]  # then the timer
    assert len(early) == 7
    assert np.abs(np.diff(early) - full).max() <= 1  # whole nanoseconds
    assert early[-1] - early[0] == pytest.approx(6 * full, abs=1)
    # A packet that leaves at 59.2 us does so at 3 Gb/s.
    assert at[8] - at[7] == pytest.approx(full * 2 / 3, abs=1)


def test_retransmissions_are_paced_too():
    line = 4_000_000_000
    made = rig("dcqcn", line_rate_bps=line, paths=1)  # one NACK names all of them
    rule = _native.DropRule()
    rule.kind, rule.attempt_last = 0, 0
    made.cables[0].rules = [rule]
    for cable in made.cables:
        cable.delay_ns = 50 * US
    made.pair.keep_sent()
    made.transfer((1, 0, 0), 20 * 2008)
    made.step_until(99 * US)  # the NACK arrives after 100 us
    made.pair.inject(0, cnp_to(frames.DATA_QP, *reversed(ADDRESSES)))
    made.finish()
    made.check()
    again = [
        (at, f) for at, f in sent(made.pair, 0, DATA)
        if destination_qp(f) == frames.RECOVERY_QP and f[frames.layout(f).lab_at] & 15 == 0
    ]  # fmt: skip
    assert len(again) == 20
    full = len(again[0][1]) * 8 * 10**9 / (line // 2)
    gaps = np.diff([at for at, _ in again])
    assert np.abs(gaps[:6] - full).max() <= 1  # whole nanoseconds
    assert gaps.min() >= full / 2 - 1  # later faster, at most at the line rate


def closed_loop(name, service_ns, *, window=256, lose_from=60):
    """A transfer over a bottleneck: the time that it took, and what the queue did."""
    made = rig(name, line_rate_bps=40_000_000_000, window_packets=window,
               report_least_interval_ns=5 * US, base_rtt_ns=43 * US)  # fmt: skip
    made.cables[0].packet_time_ns = 423  # 2114 bytes at 40 Gb/s
    made.cables[0].service_time_ns = service_ns
    made.cables[0].mark_from = 10
    made.cables[0].lose_from = lose_from
    for cable in made.cables:
        cable.delay_ns = 20 * US
    made.transfer((1, 0, 0), 4_000_000)
    made.finish(within_ns=1_000 * MILLISECOND_NS)
    made.check()
    done = made.sides[1].completions[0].completed_ns
    return made, done, made.pair.totals(0)


def test_dcqcn_keeps_the_queue_short():
    packets = 4_000_000 / 2008
    made, done, totals = closed_loop("dcqcn", 2 * US, window=64, lose_from=256)
    assert totals["lost"] == 0
    # Three CNPs for the first burst make an eighth of the line rate, 5 Gb/s of the 8.5 that there
    # are, and additive increase takes a millisecond for each 0.7.
    assert 2 * packets * US < done < 5 * packets * US
    assert made.counters(0)["rx_cnp"] >= 5
    _, _, of_bdp = closed_loop("bdp", 2 * US, window=64, lose_from=256)
    assert totals["marked"] < of_bdp["marked"] / 4  # whose whole window stands there


def test_swift_keeps_the_delay_near_its_target():
    packets = 4_000_000 / 2008
    made, done, totals = closed_loop("swift", 2 * US)
    assert totals["lost"] < 256  # of the first window
    assert done < 6 * packets * US  # two looks for what was lost among it
    figures = made.sides[0].endpoint.congestion(0)
    srtt = made.sides[0].endpoint.peer_state(0).srtt_ns
    assert figures["window_packets"] < 128
    assert srtt < 1.5 * figures["target_delay_ns"]


@pytest.mark.parametrize("name", ["dcqcn", "swift"])
@pytest.mark.parametrize("seed", range(1))
def test_messages_end_well_whatever_the_cable_does(name, seed):
    made = rig(name, seed=seed, line_rate_bps=2_000_000_000)
    for cable in made.cables:
        cable.loss = int(0.05 * 2**64)
        cable.duplicate = cable.corrupt = int(0.01 * 2**64)
        cable.jitter_ns = 50 * US
        cable.service_time_ns = 5 * US
        cable.mark_from, cable.lose_from = 5, 40
    for n in range(4):
        made.transfer((1, 0, n), 60_000 * (n + 1), sender=n % 2)
    made.finish()
    made.check()
    made.quiesce()


# ---------------------------------------------------------------- connected queue pairs


RC_DATA = tuple(range(0x0C))
UC_DATA = tuple(0x20 + each for each in RC_DATA)
READ_RESPONSES = tuple(range(0x0D, 0x11))
LINE = 4_000_000_000


def duo(name, kind=RC, **settings):
    known = {"congestion_control": name, "line_rate_bps": LINE, "base_rtt_ns": 100 * US}
    return Duo(kind, settings=known | settings)


def write(made, length, opcode=WRITE):
    near, far = made.sides
    near.memory[:length] = np.arange(length) % 251
    error = near.post_send(opcode, (0, length), remote_addr=far.address, rkey=far.key)
    assert error == 0


@pytest.mark.parametrize(("kind", "data"), [(RC, RC_DATA), (UC, UC_DATA)])
def test_a_cnp_slows_a_queue_pair(kind, data):
    made = duo("dcqcn", kind)
    near, far = made.sides
    made.pair.inject(0, cnp_to(near.number, *reversed(ADDRESSES)))
    made.pair.keep_sent()
    write(made, 14 * 1024)
    made.run()
    assert near.completions[0].status == 0
    assert (far.memory[: 14 * 1024] == near.memory[: 14 * 1024]).all()
    at = np.array([at for at, _ in sent(made.pair, 0, data)])
    assert len(at) == 14
    # 1024 bytes and 62 of headers at 2 Gb/s; 12 more in the first, for a RETH of 16 bytes.
    gaps = np.diff(at)
    assert np.abs(gaps[1:9] - 1082 * 8 / 2).max() <= 1
    assert abs(gaps[0] - 1098 * 8 / 2) <= 1


def test_read_responses_are_paced_acknowledgements_are_not():
    made = duo("dcqcn")
    near, far = made.sides
    made.pair.inject(1, cnp_to(far.number, *ADDRESSES))
    far.memory[: 8 * 1024] = 7
    made.pair.keep_sent()
    near.post_send(READ, (0, 8 * 1024), remote_addr=far.address, rkey=far.key)
    made.run()
    assert near.completions[0].status == 0
    assert (near.memory[: 8 * 1024] == 7).all()
    at = [at for at, _ in sent(made.pair, 1, READ_RESPONSES)]
    assert np.diff(at).min() >= 4_300

    made.pair.inject(1, cnp_to(far.number, *ADDRESSES))
    write(made, 1024)
    write(made, 1024)
    made.run()
    acks = [at for at, _ in sent(made.pair, 1, (0x11,))]
    assert len(acks) >= 1
    assert all(each.status == 0 for each in near.completions)


def test_swift_in_a_queue_pair_measures_acknowledgements():
    made = duo("swift", window_packets=128)
    near = made.sides[0]
    cable = made.pair.cable(0)
    cable.service_time_ns, cable.lose_from = 4 * US, 100
    for which in range(2):
        made.pair.cable(which).delay_ns = 50 * US
    write(made, 1 << 20)
    made.run()
    assert near.completions[0].status == 0
    assert made.pair.totals(0)["lost"] < 40  # the first window of 128
    figures = near.endpoint.qp_congestion(near.number)
    # 100 us of propagation and 25 to 125 us more of queue: 31 to 56 packets of 4 us.
    assert 20 < figures["window_packets"] < 80


@pytest.mark.parametrize("name", ["dcqcn", "swift"])
@pytest.mark.parametrize("seed", range(1))
def test_requests_end_well_whatever_the_cable_does(name, seed):
    made = Duo(seed=seed, settings={"congestion_control": name, "line_rate_bps": LINE,
                                    "base_rtt_ns": 100 * US})  # fmt: skip
    for which in range(2):
        cable = made.pair.cable(which)
        cable.loss = int(0.02 * 2**64)
        cable.duplicate = int(0.01 * 2**64)
        cable.jitter_ns = 20 * US
        cable.service_time_ns, cable.mark_from, cable.lose_from = 3 * US, 5, 40
    near, far = made.sides
    near.memory[: 1 << 19] = np.arange(1 << 19) % 253
    for n in range(4):
        at = n << 17
        near.post_send(WRITE, (at, 1 << 17), remote_addr=far.address + at, rkey=far.key)
    far.post_receive((1 << 19, 4096))
    near.post_send(SEND, (0, 4096))
    near.post_send(READ, (3 << 18, 1 << 16), remote_addr=far.address, rkey=far.key)
    made.run()
    assert [each.status for each in near.completions] == [0] * 6
    assert (far.memory[: 1 << 19] == near.memory[: 1 << 19]).all()
    assert (near.memory[3 << 18 : (3 << 18) + (1 << 16)] == far.memory[: 1 << 16]).all()
