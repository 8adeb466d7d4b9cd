# SPDX-License-Identifier: GPL-2.0-or-later
"""Striped messages: buffers of any size over datagrams, cut and put together by the RNIC.

One data QP and one recovery QP serve all peers. A message is named by (operation, step, message),
the same at both ends. A transport (native/transport) repairs losses.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress

from softroce_lab.verbs.base import Closable, table
from softroce_lab.verbs.cq import WC
from softroce_lab.verbs.mr import MR
from softroce_lab.verbs.pd import PD
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection; `index` is what completions and policies call it."""

    index: int
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    qpns: tuple[int, int]


class MessageEndpoint(Closable):
    """The two QPs of an RNIC that move striped messages; there is one of it at a time.

    Closing it ends all its work requests in IBV_WC_WR_FLUSH_ERR.
    """

    close_rank = 0

    def __init__(self, pd: PD, qkey: int) -> None:
        self._endpoint = pd.ctx.endpoint
        pd.ctx.take_messages(self)
        self._endpoint.set_qkey(qkey)
        super().__init__(pd)
        self.pd = pd
        self.qkey = qkey

    @property
    def qpns(self) -> tuple[int, int]:
        """Numbers of the data QP and the recovery QP, for the peers' `connect`."""
        return int(self._endpoint.data_qp), int(self._endpoint.recovery_qp)

    def connect(self, address: int | str, mac: int, qpns: tuple[int, int], qkey: int) -> Peer:
        """Make the endpoint at an IP address known; `mac` is the next hop's.

        Both sides connect before the first packet arrives. EISCONN: it is connected already;
        EAFNOSUPPORT: the address is of another IP version than this port's.
        """
        ip = ipaddress.ip_address(address)
        try:
            index = self._endpoint.connect(int(ip), mac, *qpns, qkey)
        except OSError as error:
            raise PyverbsRDMAError("Failed to connect", _errno(error)) from error
        return Peer(index, ip, qpns)

    def post_recv(
        self,
        op: int,
        step: int,
        peer: Peer,
        length: int,
        mr: MR,
        offset: int = 0,
        *,
        message: int = 0,
        wr_id: int = 0,
    ) -> None:
        """Expect at most `length` bytes from `peer` as message `message` of a step of an operation.

        A name that is posted already completes in IBV_WC_LOC_QP_OP_ERR.
        """
        try:
            self._endpoint.post_receive(
                peer.index, _name(op, step, message), mr.lkey, offset, length, wr_id, self.pd.handle
            )
        except (OSError, ValueError) as error:
            raise PyverbsRDMAError("Failed to post recv", _errno(error)) from error

    def post_send(
        self,
        op: int,
        step: int,
        peer: Peer,
        length: int,
        mr: MR,
        offset: int = 0,
        *,
        message: int = 0,
        wr_id: int = 0,
    ) -> None:
        """Send `length` bytes to `peer` as message `message` of a step of an operation.

        More sends than the peer has slots for complete in IBV_WC_LOC_QP_OP_ERR.
        """
        try:
            self._endpoint.post_send(
                peer.index, _name(op, step, message), mr.lkey, offset, length, wr_id, self.pd.handle
            )
        except (OSError, ValueError) as error:
            raise PyverbsRDMAError("Failed to post send", _errno(error)) from error

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """(count, completions), as `CQ.poll`."""
        completions = [WC.of(each) for each in self._endpoint.poll_completions(num_entries)]
        return len(completions), completions

    def _release(self) -> None:
        self._endpoint.flush_messages()
        self.pd.ctx.take_messages(None)

    def __str__(self) -> str:
        return "Message endpoint\n" + table([("QP numbers", self.qpns), ("QKey", self.qkey)])


def _name(op: int, step: int, message: int) -> tuple[int, int, int]:
    if not (0 <= op < 1 << 16 and 0 <= step < 1 << 16 and 0 <= message < 1 << 32):
        raise PyverbsUserError("operation and step have 16 bits, a message's number has 32")
    return op, step, message


def _errno(error: OSError | ValueError) -> int:
    return (error.errno if isinstance(error, OSError) else None) or errno.EINVAL
