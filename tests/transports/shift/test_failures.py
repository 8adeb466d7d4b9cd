# SPDX-License-Identifier: GPL-2.0-or-later
"""More than one failure: during the failover, the failback, of both NICs, of the service; flaps."""

import pytest

from softroce_lab.experiment.fuzz.failover.rig import (
    ACCESS,
    DETECTION_NS,
    SETTINGS,
    STEP_NS,
    Rig,
)
from softroce_lab.experiment.fuzz.failover.work import (
    BOUND_NS,
    DEPTH,
    FIXED,
    SI,
    WI,
    Case,
    Op,
    R,
    S,
    W,
)
from softroce_lab.transports.shift import Sender
from softroce_lab.verbs import MR
from softroce_lab.verbs.enums import (
    IBV_QPS_ERR,
    IBV_WC_RDMA_WRITE,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
)

# A control message is tried eight times, each for at most four timeouts.
CONTROL_NS = 8 * 4 * (4096 << 3)
SURFACED_NS = DETECTION_NS + CONTROL_NS + SETTINGS.handshake_timeout_ns


def ends(end):
    return [(wc.wr_id, wc.status) for wc in end.poll()]


def end_of(rig, case, bound_ns):
    """A case that may surface an error: it is over in time, and what was done is right."""
    case.run(bound_ns)
    for talk in case.talks:
        assert talk.is_over or any(end.state is Sender.FAILED for end in rig.ends)


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("packet", range(0, 12, 3))
def test_the_backup_fails_at_a_packet(direction, packet):
    rig = Rig()
    rig.cut(0)
    rig.pairs[1].cable(direction).carries = packet
    end_of(rig, Case(rig), SURFACED_NS + 2 * BOUND_NS)
    rig.close()


def test_both_nics_fail():
    rig = Rig()
    a, b = rig.ends
    b.receive(8, 40000, wr_id=7)
    for rail in range(2):
        rig.cut(rail)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=1)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=2)
    a.receive(8, 40000, wr_id=3)
    assert rig.until(lambda: a.state is Sender.FAILED, DETECTION_NS + CONTROL_NS)
    assert a.backup.events[-1].why == "the peer cannot be reached over the backup"
    assert ends(a) == [
        (1, IBV_WC_RETRY_EXC_ERR), (2, IBV_WC_WR_FLUSH_ERR), (3, IBV_WC_WR_FLUSH_ERR)
    ]  # fmt: skip
    assert a.qp.qp_state == IBV_QPS_ERR
    rig.close()


def fallen(rig):
    """A case whose first rail is gone and back, both ends waiting for a signaled request."""
    rig.cut(0)
    case = Case(rig, [FIXED[:3], FIXED[:3]])
    case.run()
    rig.cut(0, down=False)
    assert rig.until(lambda: all(e.state is Sender.WAIT_SIGNALED for e in rig.ends), 2_000_000)
    return case


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("packet", range(0, 10, 3))
def test_the_default_nic_fails_again_during_the_failback(side, packet):
    """At every packet that it carries, in each direction."""
    rig = Rig()
    case = fallen(rig)
    rig.pairs[0].cable(side).carries = packet
    case.extend(FIXED[:8], FIXED[:4])
    case.run(3 * BOUND_NS)
    assert not case.failed
    rig.close()


@pytest.mark.parametrize("side", [0, 1])
def test_the_backup_nic_fails_during_the_failback(side):
    """At every packet that it carries then: all is done once, or an error surfaces in time."""
    surfaced = 0
    for packet in range(14):
        rig = Rig()
        case = fallen(rig)
        rig.pairs[1].cable(side).carries = packet
        case.extend(FIXED[:8], FIXED[:4])
        end_of(rig, case, SURFACED_NS + 3 * BOUND_NS)
        surfaced += case.failed
        rig.close()
    print(f"side {side}: 14 cases, {surfaced} surfaced an error")
    assert 0 < surfaced < 14


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("twice", [True])
def test_every_message_of_the_failback_lost(side, twice):
    lost = 0
    for number in range(14):
        rig = Rig()
        case = fallen(rig)
        sent = rig.pairs[1].totals(side)["sent"]
        # Atomics are at home in a failback: none is in flight when the path changes.
        case.extend([Op(W, 8), Op(SI, 8), Op(W, 8)], [Op(SI, 8)])
        rig.pairs[1].cable(side).loses = [sent + number]
        if twice:
            rig.pairs[1].cable(side).loses = [sent + number, sent + number + 1]
        before = rig.pairs[1].totals(side)["lost"]
        end_of(rig, case, 3 * BOUND_NS + CONTROL_NS)
        if not case.failed:
            assert rig.until(rig.is_default, 8_000_000)
        lost += rig.pairs[1].totals(side)["lost"] > before
        rig.close()
    assert lost >= 4


def test_a_failback_that_takes_too_long_is_given_up():
    """One end cannot drain: its SEND waits for a receive, which may depend on what is held."""
    rig = Rig()
    fallen(rig)
    a, b = rig.ends
    a.poll(), b.poll()
    for _ in range(DEPTH + 1):  # one more than there are receives
        a.post(IBV_WR_SEND, 8, 0, flags=0)
    b.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=1)  # the fence: b drains, and so does a
    b.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=2)  # held
    rig.run(SETTINGS.drain_timeout_ns // 2)
    assert a.state is b.state is Sender.WAIT_DRAINED
    assert [wc.wr_id for wc in b.poll() if wc.opcode == IBV_WC_RDMA_WRITE] == [1]
    rig.run(SETTINGS.drain_timeout_ns)
    assert [wc.wr_id for wc in b.poll() if wc.opcode == IBV_WC_RDMA_WRITE] == [2]
    assert not {Sender.WAIT_DRAINED, Sender.FAILED} & {a.state, b.state}
    rig.close()


def test_a_path_that_fails_soon_after_a_failback_is_probed_half_as_often_each_time():
    rig = Rig()
    case = Case(rig, [[], []])
    for _ in range(6):
        rig.cut()
        case.extend([Op(WI, 300)], [])
        case.run()
        rig.cut(down=False)
        assert rig.until(lambda: all(e.state is Sender.WAIT_SIGNALED for e in rig.ends), 4_000_000)
        case.extend([Op(WI, 300)], [Op(SI, 100)])
        case.run(3 * BOUND_NS)
        assert rig.until(rig.is_default, 1_000_000)
    taken, fell_ns = [], 0
    for event in rig.ends[0].backup.events:
        if event.after == "Fallback" and event.side == "sender":
            fell_ns = event.at_ns
        elif event.after == "WaitSignaled":
            taken.append(event.at_ns - fell_ns)
    least, most = SETTINGS.probe_interval_ns, SETTINGS.most_probe_interval_ns
    wanted = [min(least << n, most) for n in range(6)]
    assert all(0 <= a - b < 50_000 for a, b in zip(taken, wanted, strict=True)), taken
    rig.close()


# ---------------------------------------------------------------- the key-value service


def test_the_service_is_not_needed_during_a_failover():
    """Keys are fetched ahead."""
    rig = Rig()
    rig.store.reachable = False
    rig.cut(0)
    case = Case(rig)
    case.run()
    assert not case.failed
    rig.close()


@pytest.mark.parametrize("reachable", [True, False])
def test_a_key_that_was_not_fetched_ahead(reachable):
    """It is asked for; if the service does not answer then, the failure surfaces."""
    rig = Rig()
    a, b = rig.ends
    late = MR(b.pd, 64, ACCESS)
    request = a.request(IBV_WR_RDMA_WRITE, 8, 0, wr_id=1)
    request.set_wr_rdma(late.rkey, late.buf)
    rig.store.reachable = reachable
    rig.cut(0)
    a.memory[:8] = 4
    a.qp.post_send(request)
    rig.run(2 * DETECTION_NS)
    expected = IBV_WC_SUCCESS if reachable else IBV_WC_RETRY_EXC_ERR
    assert ends(a) == [(1, expected)]
    assert bytes(late.read(8, 0)) == (bytes([4] * 8) if reachable else bytes(8))
    rig.close()


# ---------------------------------------------------------------- the peer


def test_a_peer_that_does_not_answer():
    """Its NIC acknowledges, but nobody is there."""
    rig = Rig()
    a, b = rig.ends
    rig.cut(0)
    b.backup.advance = lambda: None
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=1)
    rig.run(DETECTION_NS + SETTINGS.handshake_timeout_ns + 10 * STEP_NS)
    assert ends(a) == [(1, IBV_WC_RETRY_EXC_ERR)]
    rig.close()


# ---------------------------------------------------------------- steady state


def test_without_failures_a_shift_qp_does_what_a_qp_does():
    """Packet by packet on the first rail; nothing at all on the second."""
    frames = []
    for shift in (True, False):
        rig = Rig(shift=shift)
        rig.pairs[0].keep_sent()
        case = Case(rig, [[*FIXED, Op(R, 300)], FIXED[:4]])
        case.run()
        frames.append([each[:2] for each in rig.pairs[0].take_sent()])
        assert rig.pairs[1].totals(0)["sent"] == rig.pairs[1].totals(1)["sent"] == 0
        rig.close()
    assert frames[0] == frames[1]


def test_a_program_that_only_sends_goes_back_too():
    """Its queue pairs give peers no right to WRITE: probes and fences need one all the same."""
    rig = Rig(qp_access_flags=0)
    rig.cut()
    case = Case(rig, [[Op(S, 100)] * 3, [Op(S, 8)]])
    case.run()
    rig.cut(down=False)
    rig.run(400_000)
    case.extend([Op(S, 100)] * 3, [Op(S, 8)])
    case.run(3 * BOUND_NS)
    assert rig.until(rig.is_default, 2_000_000)
    for talk in case.talks:
        talk.check_end()
