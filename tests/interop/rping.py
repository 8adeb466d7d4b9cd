# SPDX-License-Identifier: GPL-2.0-or-later
"""rping of librdmacm, either side, on the lab's CMID.

Each ping: the client tells where its text is; the server READs it and says so; the client tells
where it wants it; the server WRITEs it there and says so. What is told are 16 bytes by SEND.
"""

import struct

from softroce_lab.rdmacm import CMID, AddrInfo, ConnParam, rdma_addrinfo_flags
from softroce_lab.rdmacm.events import rdma_cm_event_type
from softroce_lab.rnic import MR, QPCap, QPInitAttr
from softroce_lab.rnic.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR,
)

PORT = "7174"
INFO = struct.Struct(">QII")  # struct rping_rdma_info: address, rkey, size
ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
WAIT_S = 30


def init():
    return QPInitAttr(qp_type=IBV_QPT_RC, cap=QPCap(max_send_wr=16, max_recv_wr=4))


def done(completion, *others):
    assert completion.status in (IBV_WC_SUCCESS, *others), completion
    return completion


class End:
    """What both sides have: a message each way, one receive posted always."""

    def __init__(self, cmid):
        cmid.timeout_s = WAIT_S
        self.cmid = cmid
        self.received = cmid.reg_msgs(INFO.size)
        self.output = cmid.reg_msgs(INFO.size)
        cmid.post_recv(self.received)

    def tell(self, address=0, rkey=0, size=0):
        self.output.write(INFO.pack(address, rkey, size), INFO.size)
        self.cmid.post_send(self.output)

    def reported(self, *, last=False):
        """What was told has arrived. Of the last word only the other side can know: it may have
        heard it and gone, and its acknowledgement be lost."""
        gone = (IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR) if last else ()
        done(self.cmid.get_send_comp(), *gone)

    def receive(self):
        done(self.cmid.get_recv_comp())
        reported = INFO.unpack(self.received.read(INFO.size, 0))
        self.cmid.post_recv(self.received)
        return reported


def listener(address):
    made = CMID(AddrInfo(src=address, src_service=PORT, flags=rdma_addrinfo_flags.RAI_PASSIVE),
                init())  # fmt: skip
    made.timeout_s = WAIT_S
    made.listen()
    return made


def serve(listening, count):
    """One client, so many pings; the texts that it had."""
    end = End(listening.get_request())
    end.cmid.accept(ConnParam())
    buffer = end.cmid.reg_msgs(1 << 20)
    texts = []
    for nth in range(1, count + 1):
        address, rkey, size = end.receive()
        end.cmid.post_read(buffer, size, address, rkey, flags=IBV_SEND_SIGNALED)
        done(end.cmid.get_send_comp())
        end.tell()
        end.reported()
        texts.append(buffer.read(size, 0))
        address, rkey, _ = end.receive()
        length = texts[-1].index(b"\0") + 1
        end.cmid.post_write(buffer, length, address, rkey, flags=IBV_SEND_SIGNALED)
        done(end.cmid.get_send_comp())
        end.tell()
        end.reported(last=nth == count)
    # The client ends it, as with rping: it may not have looked at the last word yet.
    end.cmid._await(rdma_cm_event_type.RDMA_CM_EVENT_DISCONNECTED, "await the end")
    end.cmid._hang_up()
    end.cmid.close()
    return texts


def ping(source, server, texts):
    """The client: each text comes back."""
    cmid = CMID(AddrInfo(src=source, dst=server, dst_service=PORT), init())
    end = End(cmid)
    cmid.connect(ConnParam(resources=1, depth=1, retry=7, rnr_retry=7))
    length = len(texts[0]) + 1
    start, back = (MR(cmid.pd, length, ACCESS) for _ in range(2))
    for nth, text in enumerate(texts, 1):
        start.write(text + b"\0", length)
        end.tell(start.buf, start.rkey, length)
        end.reported()
        end.receive()
        end.tell(back.buf, back.rkey, length)
        end.receive()
        end.reported(last=nth == len(texts))
        assert back.read(length, 0) == text + b"\0"
    cmid.disconnect()
    cmid.close()
