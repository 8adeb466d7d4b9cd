# SPDX-License-Identifier: GPL-2.0-or-later
"""Exactly once over two queue pairs, from captures of both rails: the paper's two traces."""

import pytest
from softroce_lab._native import shift

from softroce_lab import _native
from softroce_lab.check.verdict import Outcome
from softroce_lab.experiment.failover import rig as failover
from softroce_lab.experiment.failover.rig import Options, VirtualRun
from softroce_lab.experiment.failover.ring_job import reference
from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS, Rig
from softroce_lab.experiment.fuzz.failover.work import FA, SI, WI, Case, Op, S, W
from softroce_lab.learn.failover.machine import STEPS
from tests.check.plant import Frame, Tape, check, failed, shown

TRACES = {"request lost": 0, "acknowledgement lost": 1}  # the direction that is dead
LINKS = ("h1->leaf1", "h2->leaf1", "h1->leaf2", "h2->leaf2")  # by rail and side
RULES = {"shift.once", "shift.atomic", "shift.count"}


class Transparent:
    """Repeats all that is in flight, whatever it is, and asks nobody."""

    def order_steps(self):
        return STEPS

    def divide(self, unfinished, executed, now_ns):
        return [], list(range(len(unfinished)))

    def step_done(self):
        pass

    def write_down(self, text, now_ns):
        pass


class TransparentRig(Rig):
    def __init__(self):
        super().__init__()
        for end in self.ends:
            end.qp.native.decide_by(Transparent())


def recorded(rig):
    """What left each RNIC of both rails, whether it was lost or not."""
    frames = [
        Frame(time_ns, bytes(data), interface=2 * rail + side)
        for rail, pair in enumerate(rig.pairs)
        for time_ns, side, data in pair.take_sent()
    ]
    return Tape(sorted(frames, key=lambda each: each.time_ns), LINKS)


def talk(ops, dead, run_ns=3 * DETECTION_NS):
    """The requests of one end, one direction of the first rail being dead."""
    rig = Rig()
    for pair in rig.pairs:
        pair.keep_sent()
    rig.pairs[0].cable(dead).down = True
    a, b = rig.ends
    for number in range(4):
        b.receive(1024, 40_000 + 1024 * number, wr_id=number)
    for number, op in enumerate(ops):
        a.memory[1000 * number : 1000 * (number + 1)] = number + 1
        a.post(op.kind, op.length, 1000 * number, to=2000, wr_id=number)
    rig.run(run_ns)
    tape = recorded(rig)
    rig.close()
    return tape


def of_shift(verdicts):
    return {rule: each for rule, each in verdicts.items() if rule in RULES}


@pytest.fixture
def transparent(monkeypatch):
    monkeypatch.setattr(f"{__name__}.Rig", TransparentRig)


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize(
    "ops",
    [[Op(W, 900), Op(WI, 0)], [Op(W, 900), Op(S, 100), Op(W, 500), Op(SI, 8)], [Op(FA, 8)]],
    ids=["write and notification", "two of them", "an atomic"],
)
def test_a_shift_qp_passes_under_both(trace, ops, tmp_path):
    verdicts = of_shift(talk(ops, TRACES[trace]).check(tmp_path))
    assert failed(verdicts) == set()
    assert verdicts["shift.count"].checked >= 1


@pytest.mark.parametrize("trace", TRACES)
def test_a_transparent_retry_fails_where_the_peer_had_executed(transparent, trace, tmp_path):
    """The sender sees the same in both; the capture of the receiver's count tells them apart."""
    tape = talk([Op(W, 900), Op(S, 100)], TRACES[trace])
    verdicts = of_shift(tape.check(tmp_path))
    assert verdicts["shift.atomic"].outcome is Outcome.NOT_APPLICABLE
    if trace == "request lost":
        assert failed(verdicts) == set()
        assert verdicts["shift.once"].checked == 2
        return
    assert failed(verdicts) == {"shift.once"}
    assert verdicts["shift.once"].failures == 2
    frames = [tape.frame(number).interface for number in sorted(shown(verdicts["shift.once"]))]
    assert frames == [0, 0, 2, 2]  # the same requests by both rails


@pytest.mark.parametrize("trace", TRACES)
def test_a_transparent_retry_of_an_atomic_fails_under_both(transparent, trace, tmp_path):
    verdicts = of_shift(talk([Op(FA, 8)], TRACES[trace]).check(tmp_path))
    assert failed(verdicts) == {"shift.atomic"}


def test_a_program_that_repeats_itself_is_inconclusive(transparent, tmp_path):
    rig = Rig()
    for pair in rig.pairs:
        pair.keep_sent()
    rig.pairs[0].cable(1).down = True
    a, b = rig.ends
    for number in range(4):
        b.receive(64, 40_000, wr_id=number)
    for number in range(2):
        a.post(S, 8, 0, wr_id=number)
    rig.run(3 * DETECTION_NS)
    verdicts = of_shift(recorded(rig).check(tmp_path))
    rig.close()
    assert verdicts["shift.once"].outcome is Outcome.INCONCLUSIVE
    assert "sends the same several times" in verdicts["shift.once"].note


def test_without_payloads_it_is_inconclusive(transparent, tmp_path):
    """A snap length leaves headers, and control messages, which are short."""
    tape = talk([Op(W, 900), Op(S, 500)], 1)
    for frame in tape.frames:
        if len(frame.data) > 200:
            frame.length, frame.data = len(frame.data), frame.data[:200]
    verdicts = of_shift(tape.check(tmp_path))
    assert verdicts["shift.once"].outcome is Outcome.INCONCLUSIVE
    assert "snap length" in verdicts["shift.once"].note


def test_failover_failback_and_failover_again(tmp_path):
    rig = Rig()
    for pair in rig.pairs:
        pair.keep_sent()
    rig.pairs[0].cable(1).carries = 9
    case = Case(rig)
    case.run()
    rig.cut(down=False)
    rig.run(400_000)
    case.extend([Op(WI, 700), Op(W, 100), Op(SI, 30)], [Op(SI, 20), Op(SI, 40)])
    case.run(10_000_000)
    assert rig.until(rig.is_default, 2_000_000)
    rig.cut()
    case.extend([Op(WI, 300), Op(SI, 8)], [Op(SI, 8)])
    case.run(10_000_000)
    verdicts = of_shift(recorded(rig).check(tmp_path))
    rig.close()
    assert failed(verdicts) == set()
    assert verdicts["shift.count"].checked == 6  # three moves of each end


def test_a_queue_pair_that_begins_anew_does_not_break_rules_of_one_life(tmp_path):
    """A failed probe is repeated with its PSN: rules of one queue pair's life say nothing of it."""
    rig = Rig()
    for pair in rig.pairs:
        pair.keep_sent()
    rig.pairs[0].cable(1).down = True
    case = Case(rig, [[Op(WI, 700), Op(S, 100)], [Op(SI, 20)]])
    case.run()
    rig.run(8_000_000)
    rig.cut(down=False)
    rig.run(2_000_000)
    case.extend([Op(W, 100), Op(SI, 30)], [Op(SI, 20)])
    case.run(20_000_000)
    assert rig.until(rig.is_default, 2_000_000)
    verdicts = recorded(rig).check(tmp_path)
    rig.close()
    assert failed(verdicts) == set()
    for rule in ("rc.retry-limit", "rc.msn-monotonic", "rc.msn-right"):
        assert "begins anew" in verdicts[rule].note, rule


def test_a_job_with_failovers_keeps_all_rules(tmp_path):
    """Three hosts of a simulated fabric, two connections each, captured at both rails of one."""
    options = Options(hosts=3, steps=16, model_bytes=24_000, dies_at=3, repaired_at=6, seed=5)
    plan, hosts = failover.plan_of(options)
    job = failover.job_of(options, len(hosts))
    run = VirtualRun(plan, hosts, job, options, reference(job))
    links = {n: name for n, name in run.fabric.link_names.items() if "h1" in name.split("->")}
    path = tmp_path / "both-rails.pcapng"
    with path.open("wb") as file:
        run.fabric.capture(links, 0, file.write, run.wanted("down")(run.fabric.plan).faults)
        assert run.run(shift=True).right
        run.fabric.end_capture()
    verdicts = check(path)
    assert failed(verdicts) == set()
    assert verdicts["shift.once"].checked > 300
    assert verdicts["shift.count"].checked == 8  # two moves of four ends


def counts_less(tape, epoch):
    """The MOVE of h2 for an epoch counts nothing."""
    for number in range(1, len(tape) + 1):
        payload = dict(_native.decode_frame(tape.frame(number).data))["payload"]
        control = shift.read_message(payload)
        is_h2 = LINKS[tape.frame(number).interface].startswith("h2")
        if is_h2 and control and control[0] == shift.Message(
            shift.Kind.MOVE, epoch, control[0].received, control[0].next_psn
        ):  # fmt: skip
            tape.alter(number, payload=payload[:16] + bytes(8) + payload[24:])


def test_a_count_that_goes_back_fails(tmp_path):
    rig = Rig()
    for pair in rig.pairs:
        pair.keep_sent()
    case = Case(rig, [[Op(WI, 8)] * 2, []])
    case.run()
    rig.cut()
    case.extend([Op(WI, 8)], [])
    case.run()
    rig.cut(down=False)
    rig.run(400_000)
    for end in rig.ends:
        end.post(W, 8, 0, to=3000)
    rig.run(2_000_000)
    tape = recorded(rig)
    rig.close()
    counts_less(tape, epoch=2)
    assert failed(of_shift(tape.check(tmp_path))) == {"shift.count"}
