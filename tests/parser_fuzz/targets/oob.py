# SPDX-License-Identifier: GPL-2.0-or-later
"""The out-of-band exchange of perftest and of the pingpongs, over TCP.

The first octet chooses who we are, the rest is all that the peer ever says.
"""

from __future__ import annotations

import socket
import struct

from softroce_lab.perftest.oob import (
    OobError,
    OobSocket,
    PingpongDest,
    pingpong_client,
    pingpong_server_receives,
    pingpong_server_sends,
)
from softroce_lab.perftest.oob_perftest import (
    KINDS,
    VERBS,
    BwReport,
    Conversation,
    PerftestDest,
    PerftestPeer,
)
from softroce_lab.rnic import GID

_GID = GID("0000:0000:0000:0000:0000:ffff:0a00:0001")
_TESTS = [f"{verb}_{kind}" for verb in VERBS for kind in KINDS]
_TIMEOUT_S = 5.0
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: no TIME_WAIT, of which there would be too many
_LISTENER = socket.create_server(("127.0.0.1", 0))


def one(data: bytes) -> None:
    """Talk to somebody who says this and hangs up."""
    who, output = data[:1] or b"\0", data[1:]
    with socket.create_connection(_LISTENER.getsockname()) as far:
        near, _ = _LISTENER.accept()
        with OobSocket(near, _TIMEOUT_S) as peer:
            for each in (far, near):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            far.sendall(output)
            far.shutdown(socket.SHUT_WR)
            try:
                _talk(peer, who[0])
            except OobError as error:
                str(error)


def _talk(peer: OobSocket, who: int) -> None:
    if who < 2:
        _pingpong(peer, client=who == 0)
        return
    client, duplex, all_sizes, duration = (bool(who >> bit & 1) for bit in range(1, 5))
    test = _TESTS[who >> 5 & 7]
    own = [PerftestDest(0x11, 1, _GID), PerftestDest(0x12, 2, _GID)]
    talk = Conversation(
        PerftestPeer(peer, client=client), test,
        duplex=duplex, all_sizes=all_sizes, duration=duration,
    )  # fmt: skip
    found = talk.peer.negotiate(3)
    assert 1 <= found.mtu <= 3
    for each in talk.meet(own):
        assert PerftestDest.parse(each.build()) == each
    talk.connected(own)
    talk.before_run(own[0])
    talk.after_run(own[0], BwReport(65536))
    talk.part(own[0], BwReport(65536))


def _pingpong(peer: OobSocket, *, client: bool) -> None:
    own = PingpongDest(0x11, 1, _GID)
    remote = pingpong_client(peer, own) if client else pingpong_server_receives(peer)
    assert PingpongDest.parse(remote.build()) == remote
    if not client:
        pingpong_server_sends(peer, own)
