# SPDX-License-Identifier: GPL-2.0-or-later
"""Failures that wait while a queue pair is left: its own are forgotten, those of others are not."""

import pytest

from softroce_lab.experiment.fuzz.failover.rig import DETECTION_NS, Rig
from softroce_lab.transports.shift import Sender, ShiftQP
from softroce_lab.verbs import QPAttr, QPInitAttr
from softroce_lab.verbs.enums import (
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPT_RC,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WR_RDMA_WRITE,
)


@pytest.fixture
def two():
    """Two connections of the same ends, a request of each failed, and nobody has looked yet."""
    rig = Rig()
    a, b = rig.ends
    more = [
        ShiftQP(end.pd, QPInitAttr(IBV_QPT_RC, None, end.cq, end.cq), backup=end.backup)
        for end in rig.ends
    ]
    for qp, end, other, peer in ((more[0], a, b, more[1]), (more[1], b, a, more[0])):
        attr = end.attr(other)
        attr.dest_qp_num = peer.qp_num
        qp.to_rts(attr)
    rig.cut(0)
    a.post(IBV_WR_RDMA_WRITE, 8, 0, to=8, wr_id=1)
    more[0].post_send(a.request(IBV_WR_RDMA_WRITE, 8, 0, to=16, wr_id=2))
    rig.pass_time(2 * DETECTION_NS)
    yield rig, a, more[0]
    rig.close()


def test_a_program_puts_one_queue_pair_in_error_while_the_failure_of_another_waits(two):
    rig, a, other = two
    other.modify(QPAttr(qp_state=IBV_QPS_ERR), IBV_QP_STATE)
    rig.run(DETECTION_NS)
    assert a.state is Sender.FALLBACK
    assert other.sender is Sender.FAILED
    ended = {wc.wr_id: (wc.qp_num, wc.status) for wc in a.poll()}
    assert ended[1] == (a.qp.qp_num, IBV_WC_SUCCESS)
    assert ended[2][0] == other.qp_num
    assert ended[2][1] in (IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR)
