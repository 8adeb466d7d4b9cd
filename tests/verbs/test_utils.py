# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers in words, and numbers themselves: those of verbs.h."""

import pytest

from softroce_lab.verbs import enums, utils

# From verbs.h of rdma-core, a few of each enum: the last, and those that are easily wrong.
VALUES = {
    "IBV_ACCESS_REMOTE_ATOMIC": 8,
    "IBV_ACCESS_RELAXED_ORDERING": 1 << 20,
    "IBV_QPT_RC": 2,
    "IBV_QPT_UD": 4,
    "IBV_QPT_DRIVER": 255,
    "IBV_QPS_SQD": 4,
    "IBV_QPS_ERR": 6,
    "IBV_QP_EN_SQD_ASYNC_NOTIFY": 4,
    "IBV_QP_AV": 128,
    "IBV_QP_MAX_QP_RD_ATOMIC": 1 << 13,
    "IBV_QP_DEST_QPN": 1 << 20,
    "IBV_QP_RATE_LIMIT": 1 << 25,
    "IBV_MTU_256": 1,
    "IBV_MTU_4096": 5,
    "IBV_WR_SEND": 2,
    "IBV_WR_RDMA_READ": 4,
    "IBV_WR_ATOMIC_FETCH_AND_ADD": 6,
    "IBV_WR_SEND_WITH_INV": 9,
    "IBV_SEND_INLINE": 8,
    "IBV_WC_FETCH_ADD": 4,
    "IBV_WC_RECV": 128,
    "IBV_WC_RECV_RDMA_WITH_IMM": 129,
    "IBV_WC_WITH_INV": 8,
    "IBV_WC_WR_FLUSH_ERR": 5,
    "IBV_WC_REM_ACCESS_ERR": 10,
    "IBV_WC_RETRY_EXC_ERR": 12,
    "IBV_WC_GENERAL_ERR": 21,
    "IBV_EVENT_COMM_EST": 4,
    "IBV_EVENT_SRQ_LIMIT_REACHED": 15,
    "IBV_EVENT_WQ_FATAL": 19,
    "IBV_SRQ_LIMIT": 2,
    "IBV_CQ_ATTR_MODERATE": 1,
    "IBV_PORT_ACTIVE": 4,
}


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_values(name, value):
    assert getattr(enums, name) == value
    assert getattr(enums, name).name == name


def test_words():
    assert utils.qp_type_to_str(2) == "RC"
    assert utils.qp_type_to_str(77) == "Unknown (77)"
    assert utils.qp_state_to_str(3) == "RTS"
    assert utils.qp_state_to_str(-1) == "Unknown (-1)"
    assert [utils.mtu_to_str(mtu) for mtu in (0, 1, 5, 6)] == [0, 256, 4096, 0]
    assert utils.access_flags_to_str(5) == "Local write Remote read "
    assert utils.cqe_status_to_str(12) == "retry exceeded error"
    assert utils.cqe_status_to_str(99) == "Unknown CQE status"
    assert utils.wc_status_to_str(5) == "IBV_WC_WR_FLUSH_ERR"
    assert utils.wc_status_to_str(99) == "Unknown WC status (99)"
    assert utils.cqe_opcode_to_str(129) == "Receive RDMA with immediate"
    assert utils.cqe_opcode_to_str(60) == "Unknown CQE opcode 60"
    assert utils.cqe_flags_to_str(9) == "GRH With invalidate "
    assert utils.event_type_to_str(15) == "IBV_EVENT_SRQ_LIMIT_REACHED"
    assert utils.event_type_to_str(77) == "Unknown event (77)"
