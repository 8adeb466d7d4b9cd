# SPDX-License-Identifier: GPL-2.0-or-later
"""The soft RNIC against the kernel's rxe, as requester and as responder."""

import itertools
import random

import pytest

from softroce_lab.experiment import capturing
from tests.interop import rxe

PAIRWISE_SEED = 20261121


def pairwise(cells, most):
    """Few cells in which every pair of values of two columns that there is occurs."""
    columns = ("requester", "service", "opcode", "size", "mtu", "loss_percent")

    def pairs(cell):
        values = [(name, getattr(cell, name)) for name in columns]
        return set(itertools.combinations(values, 2))

    cells = list(cells)
    random.Random(PAIRWISE_SEED).shuffle(cells)
    missing = set().union(*map(pairs, cells))
    chosen = []
    while missing and len(chosen) < most:
        best = max(cells, key=lambda cell: len(pairs(cell) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


CELLS = list(rxe.matrix())
SOME = pairwise([c for c in CELLS if c.size < 4 << 20], 60)


@pytest.mark.parametrize("cell", SOME, ids=str)
def test_linux_cannot_tell_the_difference(conversation, cell):
    conversation.run(cell, seed=SOME.index(cell) + 1)


@pytest.mark.parametrize("requester", ["soft", "kernel"])
@pytest.mark.parametrize("size", [64, 3000])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_answered_by_results_among_what_is_acknowledged(
    conversation, requester, size, seed, tmp_path
):
    """An acknowledgement said again must not pass for a result that got lost."""
    cell = rxe.Cell(requester, "rc", "read", size, 1024, 5)
    path = tmp_path / f"try-{len(list(tmp_path.iterdir()))}.pcapng"
    wanted = capturing.Wanted((capturing.ENDS,), path=path, optional=True)
    try:
        with capturing.capturing(conversation.lab, wanted, (rxe.SOFT, rxe.KERNEL)):
            conversation.mixed(cell, rounds=40, seed=1000 * seed + 1)
    except AssertionError as error:
        error.add_note(f"its packets: {path}")
        raise


@pytest.mark.full("rxe-matrix")
def test_the_whole_matrix(conversation, full):
    """Every operation, size, path MTU and loss against Linux's rxe, both ways."""
    cells = CELLS if full else CELLS[:1]
    failures = []
    for seed, cell in enumerate(cells, start=1):
        try:
            conversation.run(cell, seed)
        except AssertionError as error:
            failures.append(f"{cell} (seed {seed}): {error}")
    assert not failures, "\n".join(failures)
