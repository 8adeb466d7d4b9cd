# SPDX-License-Identifier: GPL-2.0-or-later
"""SDR-RDMA's SDK (arXiv 2505.05366) on the verbs: partial messages and their bitmaps.

The names are the paper's, docs/explanation/sdr.md has the rules. Nothing here retransmits: a
program reads the receiver's bitmap and decides. No call blocks; each lets waiting work go on.
"""

from softroce_lab.transports.sdr.context import Context, Memory, context_create, mr_reg
from softroce_lab.transports.sdr.qp import Qp, QpAttr, QpInfo, qp_connect, qp_create, qp_info_get
from softroce_lab.transports.sdr.receiving import (
    Receive,
    recv_bitmap_get,
    recv_complete,
    recv_imm_get,
    recv_post,
)
from softroce_lab.transports.sdr.sending import (
    Send,
    send_poll,
    send_post,
    send_stream_continue,
    send_stream_end,
    send_stream_start,
)
from softroce_lab.transports.sdr.wire import SdrError

__all__ = [
    "Context",
    "Memory",
    "Qp",
    "QpAttr",
    "QpInfo",
    "Receive",
    "SdrError",
    "Send",
    "context_create",
    "mr_reg",
    "qp_connect",
    "qp_create",
    "qp_info_get",
    "recv_bitmap_get",
    "recv_complete",
    "recv_imm_get",
    "recv_post",
    "send_poll",
    "send_post",
    "send_stream_continue",
    "send_stream_end",
    "send_stream_start",
]
