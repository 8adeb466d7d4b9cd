# SPDX-License-Identifier: GPL-2.0-or-later
"""Failovers drawn from seeds: workloads, cuts, losses, delays, duplicates.

    .venv/bin/python -m tests.shift.fuzz_failover FIRST COUNT

A seed that violates an invariant is printed with the command that replays it.
"""

import random
import sys
import time

from softroce_lab.shift import Sender
from tests.shift.rig import DETECTION_NS, SETTINGS, Rig
from tests.shift.work import BOUND_NS, FA, SI, WI, BrokenError, Case, Op, R, S, W

CONTROL_NS = 8 * 4 * (4096 << 3)
HARMLESS = (W, WI, S, SI)
CERTAIN = 2**64


class Drawn:
    """What a seed means."""

    def __init__(self, seed):
        self.seed = seed
        draw = self.draw = random.Random(seed)
        self.only_harmless = draw.random() < 0.6
        self.ops = [self._ops(draw.randrange(1, 24)), self._ops(draw.randrange(0, 10))]
        self.at_once = draw.randrange(1, 8)
        self.receive_every = draw.choice([1, 1, 3, 10])
        self.backup_fails = draw.random() < 0.15
        self.old_packets = draw.random() < 0.4
        self.delay_ns = draw.choice([500, 1000, 1000, 5000, 15_000])
        self.jitter_ns = draw.choice([0, 0, 0, 3000])
        self.duplicate = draw.choice([0, 0, 0.05])
        self.control_loss = draw.choice([0, 0, 0.02])
        self.changes = self._changes()

    def _ops(self, count):
        draw = self.draw
        kinds = HARMLESS if self.only_harmless else (*HARMLESS, FA, R)
        made = []
        for number in range(count):
            # The peer's memory is free again when it is notified: that must not take too long.
            kind = draw.choice(kinds if number % 4 else (WI, S, SI))
            longest = 1024 if kind in (S, SI) else 2048
            length = 8 if kind == FA else draw.choice([0, 1, 64, 700, 1500, longest])
            once = not self.only_harmless and draw.random() < 0.05
            made.append(Op(kind, min(length, longest), draw.random() < 0.7, once))
        return [*made, Op(SI, 8)] if made else []

    def _changes(self):
        """[(time, rail, direction or both, down or packets that it carries)], by time."""
        draw, made = self.draw, []
        at = draw.randrange(0, 40_000)
        for _ in range(draw.randrange(1, 6)):
            side = draw.choice([0, 1, 2])
            made.append((at, 0, side, draw.choice([True, True, draw.randrange(0, 12)])))
            at += draw.choice([5_000, 60_000, 300_000, 900_000])
            made.append((at, 0, 2, False))
            at += draw.choice([20_000, 200_000, 700_000])
        if self.backup_fails:
            made.append((draw.randrange(0, at), 1, draw.choice([0, 1, 2]), True))
        return sorted(made, key=lambda each: each[0])

    @property
    def bound_ns(self):
        """Each cut may cost a detection, a handshake and what is repeated."""
        last = self.changes[-1][0]
        failures = len(self.changes) + 1
        each = BOUND_NS + CONTROL_NS + SETTINGS.drain_timeout_ns
        return last + failures * each + SETTINGS.handshake_timeout_ns


def apply(rig, change):
    _, rail, side, what = change
    for which in (0, 1) if side == 2 else (side,):
        cable = rig.pairs[rail].cable(which)
        if isinstance(what, bool):
            cable.down, cable.carries = what, CERTAIN - 1
        else:
            cable.carries = what


def shape(rig, drawn):
    for rail, pair in enumerate(rig.pairs):
        for side in range(2):
            cable = pair.cable(side)
            cable.delay_ns = drawn.delay_ns
            cable.jitter_ns = drawn.jitter_ns if rail == 0 else 0
            cable.duplicate = int(drawn.duplicate * CERTAIN) if rail == 0 else 0
            cable.loss = int(drawn.control_loss * CERTAIN) if rail == 1 else 0
        if drawn.old_packets:
            pair.keep_sent()


def repeat_old(pair, frames):
    """Some of all that a rail has ever carried comes again."""
    frames += pair.take_sent()
    for _, side, frame in frames[:: max(len(frames) // 8, 1)]:
        pair.inject(1 - side, frame)
    pair.take_sent()


def run(seed):
    """BrokenError if exactly-once, order, memory or the bound do not hold; else what happened."""
    drawn = Drawn(seed)
    # With loss on the backup a retry more: two losses in a row are then no failure of it.
    rig = Rig(seed=seed, retry_cnt=7 if drawn.control_loss else 1)
    shape(rig, drawn)
    case = Case(rig, drawn.ops, drawn.at_once, drawn.receive_every)
    old, left = [[], []], list(drawn.changes)
    bound_ns = drawn.bound_ns * (4 if drawn.control_loss else 1)
    while left or not (case.is_over or case.stopped):
        if rig.now_ns > bound_ns:
            raise BrokenError(f"not over after {bound_ns} ns")
        while left and left[0][0] <= rig.now_ns:
            apply(rig, left.pop(0))
        case.step()
        if drawn.old_packets and rig.now_ns % 16_000 == 0:
            for pair, frames in zip(rig.pairs, old, strict=True):
                repeat_old(pair, frames)
    rig.run(2 * DETECTION_NS)
    case.poll()
    failed = case.failed or any(end.state is Sender.FAILED for end in rig.ends)
    if failed and drawn.only_harmless and not drawn.backup_fails:
        raise BrokenError("an error surfaced although nothing demands one")
    for talk in case.talks:
        if talk.failed or (talk.is_over and not failed):
            talk.check_end()
    moved = sum(end.qp.machine.epoch for end in rig.ends)
    rig.close()
    return moved, failed


def main():
    first, count = (int(each) for each in sys.argv[1:3])
    began, moves, failures, bad = time.monotonic(), 0, 0, 0
    for seed in range(first, first + count):
        try:
            moved, failed = run(seed)
        except Exception as error:
            bad += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
            print(f"  replay: .venv/bin/python -m tests.shift.fuzz_failover {seed} 1")
            continue
        moves, failures = moves + moved, failures + failed
    rate = count / (time.monotonic() - began)
    print(
        f"{count} seeds, {bad} violations, {moves} moves, {failures} surfaced, {rate:.0f} a second"
    )
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
