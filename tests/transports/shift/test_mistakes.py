# SPDX-License-Identifier: GPL-2.0-or-later
"""Mistakes that are planted, one at a time: the checks of the other tests catch each."""

import dataclasses

import pytest

from softroce_lab.experiment.fuzz.failover import campaign
from softroce_lab.experiment.fuzz.failover.rig import Rig
from softroce_lab.experiment.fuzz.failover.work import (
    BOUND_NS,
    FA,
    FIXED,
    WI,
    BrokenError,
    Case,
    Op,
    W,
)
from softroce_lab.transports.shift import ShiftQP
from softroce_lab.transports.shift.classes import Classes
from softroce_lab.transports.shift.machine import Machine
from softroce_lab.transports.shift.states import Path


class CountsOneMore(Machine):
    def _classify(self, move):
        return super()._classify(dataclasses.replace(move, received=move.received + 1))


class CountsOneLess(Machine):
    def _classify(self, move):
        less = max(move.received - 1, self._executed)
        return super()._classify(dataclasses.replace(move, received=less))


class RepeatsWritesOfTheNotified(Machine):
    """A WRITE is repeated although its notification was executed."""

    def _classify(self, move):
        classes = super()._classify(move)
        writes = [each for each in classes.consumed if each.opcode == 0]
        return Classes(classes.consumed, [*writes, *classes.rest], classes.culprit)

    def _complete_consumed(self, request):
        if request.opcode != 0:
            super()._complete_consumed(request)


class ReceivesAfterSends(Machine):
    """The peer may send before the receives of the old path are posted, and new ones come first."""

    late = ()

    def _post_moved(self, receives):
        self.late = list(receives)

    def post_receives(self, receives):
        late, self.late = self.late, ()
        super().post_receives([*receives, *late])


class SkipsTheFence(Machine):
    """It says that it has drained without looking."""

    def _drain(self, why, now_ns):
        super()._drain(why, now_ns)
        self._fences = 1
        self.fenced(now_ns)


def caught(monkeypatch, kind, run):
    """How many of the cases show the mistake, and of how many."""
    monkeypatch.setattr("softroce_lab.transports.shift.qp.Machine", kind)
    found = 0
    for packet in range(18):
        rig = Rig()
        try:
            run(rig, packet)
        except BrokenError:
            found += 1
        rig.close()
    print(f"{kind.__name__}: {found} of 18 cases")
    return found


def failover(rig, packet, dead=1):
    """The acknowledgements are lost from some packet on; receives are posted at any time."""
    rig.pairs[0].cable(dead).carries = packet
    for side in range(2):
        rig.pairs[1].cable(side).delay_ns = 20_000
    case = Case(rig, receive_every=16)
    case.run(5 * BOUND_NS)
    if case.failed:
        raise BrokenError("an error surfaced")


def lost_requests(rig, packet):
    """The requests are lost from some packet on."""
    failover(rig, packet, dead=0)


def failback(rig, packet):
    """A failover, and the way back with an atomic in flight."""
    rig.cut()
    Case(rig, [[Op(WI, 8)] * 2, [Op(WI, 8)]]).run()
    rig.cut(down=False)
    rig.run(400_000)
    for end in rig.ends:
        end.memory[:] = 0
        end.cq.poll(100)
    ops = [Op(W, 100, False)] * (packet % 3) + [Op(FA, 8, False), Op(W, 8), Op(W, 8)]
    rig.pairs[1].cable(0).loses = [rig.pairs[1].totals(0)["sent"] + packet % 4]
    case = Case(rig, [ops, []])
    case.run(3 * BOUND_NS)
    if case.failed:
        raise BrokenError("an error surfaced although nothing failed")


@pytest.mark.parametrize("run", [failover, lost_requests, failback])
def test_without_a_mistake_there_is_nothing_to_catch(monkeypatch, run):
    assert caught(monkeypatch, Machine, run) == 0


@pytest.mark.parametrize("kind", [CountsOneMore, CountsOneLess, RepeatsWritesOfTheNotified])
def test_a_mistake_in_the_failover_is_caught(monkeypatch, kind):
    assert caught(monkeypatch, kind, failover) > 0


def test_receives_posted_after_the_sends_are_caught(monkeypatch):
    assert caught(monkeypatch, ReceivesAfterSends, lost_requests) > 0


def test_a_skipped_fence_is_caught(monkeypatch):
    assert caught(monkeypatch, SkipsTheFence, failback) > 0


# ---------------------------------------------------------------- old packets


def old_packets_case():
    """All that the first rail carried comes again: after the failover, and after the failback."""
    rig = Rig()
    rig.pairs[0].keep_sent()
    rig.pairs[0].cable(1).carries = 9
    case = Case(rig)
    case.run()
    old = rig.pairs[0].take_sent()
    replay(rig, old, 3)
    case.run()
    rig.cut(down=False)
    rig.run(400_000)
    case.extend(FIXED[:6], FIXED[:3])
    case.run(3 * BOUND_NS)
    assert rig.until(rig.is_default, 1_000_000)
    case.extend(FIXED, FIXED[:3])
    until_ns = rig.now_ns + 3 * BOUND_NS
    while not case.is_over:
        case.step()
        replay(rig, old, 1)
        if rig.now_ns > until_ns:
            raise BrokenError("not over")
    for talk in case.talks:
        talk.check_end()
    rig.close()


def replay(rig, frames, times, rail=0):
    for _ in range(times):
        for _, side, frame in frames:
            rig.pairs[rail].inject(1 - side, frame)


def old_packets_of_the_backup_case():
    """All that the second rail carried comes again: after the failback, and while it is in use."""
    rig = Rig()
    rig.pairs[1].keep_sent()
    rig.cut()
    case = Case(rig, [FIXED, FIXED[:4]])
    case.run()
    rig.cut(down=False)
    rig.run(400_000)
    case.extend(FIXED[:6], FIXED[:3])
    case.run(3 * BOUND_NS)
    assert rig.until(rig.is_default, 1_000_000)
    old = rig.pairs[1].take_sent()
    replay(rig, old, 2, rail=1)
    case.extend(FIXED, FIXED[:3])
    case.run(3 * BOUND_NS)
    assert rig.until(rig.is_default, 1_000_000)
    rig.cut()
    case.extend(FIXED, FIXED[:4])
    until_ns = rig.now_ns + 3 * BOUND_NS
    while not case.is_over:
        case.step()
        replay(rig, old, 1, rail=1)
        if rig.now_ns > until_ns:
            raise BrokenError("not over")
    if case.failed:
        raise BrokenError("an error surfaced")
    for talk in case.talks:
        talk.check_end()
    assert all(end.qp.machine.epoch == 3 for end in rig.ends)
    rig.close()


def test_old_packets_of_the_backup_change_nothing():
    old_packets_of_the_backup_case()


def test_a_backup_that_begins_anew_with_its_old_psns_is_caught(monkeypatch):
    real = ShiftQP.prepare

    def prepare(self, path, own_psn, peer_psn):
        if path is Path.BACKUP:
            own_psn, peer_psn = self._attrs[path].sq_psn, self._attrs[path].rq_psn
        real(self, path, own_psn, peer_psn)

    monkeypatch.setattr(ShiftQP, "prepare", prepare)
    with pytest.raises(BrokenError):
        old_packets_of_the_backup_case()


def test_old_packets_change_nothing():
    old_packets_case()


def test_a_path_that_begins_anew_with_its_old_psns_is_caught(monkeypatch):
    real = Machine._move

    def move(self, why, now_ns):
        real(self, why, now_ns)
        if self._left is Path.DEFAULT:
            self._own_psn = self._face._attrs[Path.DEFAULT].sq_psn

    def tell(self, message):
        if message.next_psn and message.epoch == 1:
            message = dataclasses.replace(message, next_psn=self._attrs[Path.DEFAULT].sq_psn)
        return real_tell(self, message)

    real_tell = ShiftQP.tell
    monkeypatch.setattr(ShiftQP, "tell", tell)
    monkeypatch.setattr(Machine, "_move", move)
    with pytest.raises(BrokenError):
        old_packets_case()


# ---------------------------------------------------------------- by seeds


SEEDS = range(1, 200)


@pytest.mark.parametrize(
    "kind",
    [CountsOneMore, CountsOneLess, RepeatsWritesOfTheNotified, ReceivesAfterSends, SkipsTheFence],
)
def test_lab_fuzz_catches_each(monkeypatch, kind):
    monkeypatch.setattr("softroce_lab.transports.shift.qp.Machine", kind)
    tried = next((n for n in SEEDS if campaign.run_seed(n).outcome is None), None)
    assert tried is not None
    print(f"{kind.__name__}: seed {tried}, {campaign.run_seed(tried).what}")
