# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets of an earlier connection, when a queue pair was reset and connected again."""

from softroce_lab.verbs import Context, QPAttr
from softroce_lab.verbs.enums import *
from tests.verbs.conftest import carrying_pair
from tests.verbs.sides import connect, connected, run


def test_an_operation_of_an_earlier_connection_is_not_executed():
    pair = carrying_pair("irn")
    contexts = [Context(pair.side(which)) for which in range(2)]
    first, second = connected(contexts)
    first.fill(seed=1)
    before = bytes(second.memory)
    pair.cable(0).down = True
    pair.keep_sent()
    first.post(IBV_WR_RDMA_WRITE, second, 64)
    run(pair, 100_000)
    old = [frame for _, side, frame in pair.take_sent() if side == 0]
    for side in (first, second):
        side.qp.modify(QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE)
        side.psn += 1000
    connect(first, second)
    for frame in old:
        pair.inject(1, frame)
    assert bytes(second.memory) == before
    assert old
    for context in contexts:
        context.close()
