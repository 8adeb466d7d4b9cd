# SPDX-License-Identifier: GPL-2.0-or-later
"""What the soft RNIC and Linux's rxe say to each other under losses, captured now, and checked."""

from softroce_lab.check.verdict import Outcome
from softroce_lab.experiment import capturing
from tests.check.plant import check, failed
from tests.interop.rxe import Cell

# A guest of a busy machine may stand still for longer than these rules allow anybody to take.
OF_TIME = {"rc.duplicate-acknowledged", "rc.go-back-n", "rc.in-order", "rc.nak-names-gap",
           "rc.retry-limit", "rc.rnr-wait"}  # fmt: skip
OF_THE_CAPTURE = {"integrity.missed", "integrity.unseen", "rc.read-response",
                  "rc.results-complete", "rc.psn-continuity"}  # fmt: skip
SIZE, MTU, LOSS_PERCENT = 64 << 10, 1024, 2


def test_a_fresh_capture_violates_nothing(conversation, tmp_path):
    cells = [
        Cell(requester, "rc", opcode, SIZE, MTU, LOSS_PERCENT)
        for requester in ("soft", "kernel")
        for opcode in ("send", "write", "read", "fetch_add")
    ]
    wanted = capturing.Wanted((capturing.ENDS,), path=tmp_path / capturing.FILE, snap_bytes=0)
    with capturing.capturing(conversation.lab, wanted, ("h1", "k1")) as capture:
        for seed, cell in enumerate(cells, start=1):
            conversation.run(cell, seed)
    verdicts = check(wanted.path)
    allowed = OF_TIME | (OF_THE_CAPTURE if capture.figures.missed else set())
    exhibits = {rule: verdicts[rule].exhibits for rule in sorted(failed(verdicts) - allowed)}
    assert exhibits == {}
    assert verdicts["icrc.right"].checked > 8 * SIZE // MTU
    assert verdicts["rc.length"].outcome is Outcome.PASS
    assert verdicts["rc.read-response"].checked > 2 * SIZE // MTU
