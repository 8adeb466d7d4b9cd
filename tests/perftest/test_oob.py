# SPDX-License-Identifier: GPL-2.0-or-later
"""Out-of-band exchange over real sockets: pingpong's and perftest's words, and every silence."""

import concurrent.futures
import contextlib
import socket
import struct
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.perftest.oob import (
    OobError,
    OobServer,
    OobSocket,
    PingpongDest,
    pingpong_client,
    pingpong_server_receives,
    pingpong_server_sends,
)
from softroce_lab.perftest.oob_perftest import (
    BwReport,
    Conversation,
    Negotiated,
    PerftestDest,
    PerftestPeer,
)
from softroce_lab.rnic.addr import GID

HERE = "127.0.0.1"
PATIENCE_S = 60.0
TALK_S = 120  # so long a peer goes on that should not be waited for
GID_10 = GID("::ffff:10.77.0.10")
GID_11 = GID("::ffff:10.77.0.11")

# What ib_write_bw and ib_write_bw's server of Debian's perftest 4.5+0.17 wrote, byte by byte.
LINUX_DEST = (
    b"0000:0001:000011:84b82e:00000230:0000561fcf93f000:"
    b"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:0a:00000000:\0"
)
LINUX_VERSION = b"6.06" + bytes(12)
LINUX_REPORT = (
    b"\0\0\0\0\0\0\0@",
    b"\0\0\0\0\0\0\0d",
    b"?\267ef\324D\304<",
    b"?\260\273}\33\2\7\35",
    b"?Q\213\220=\234\265\227",
)

gids = st.ip_addresses(v=6).map(lambda each: GID(str(each)))
qpns = st.integers(0, 0xFFFFFF)


@pytest.fixture
def ends():
    """(client, server) of a connection."""
    with (
        OobServer(0, HERE) as server,
        OobSocket.connect(HERE, server.port, 10.0) as client,
        server.accept(10.0, 10.0) as accepted,
    ):
        yield client, accepted


@pytest.fixture
def raw():
    """(our end, a bare socket)."""
    with (
        OobServer(0, HERE) as server,
        socket.create_connection((HERE, server.port)) as bare,
        server.accept(1.0, 0.3) as accepted,
    ):
        yield accepted, bare


def both(first, second):
    """Results of two calls that talk with each other."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(first), pool.submit(second)]
        return [job.result(PATIENCE_S) for job in jobs]


# Pingpong


@given(lid=st.integers(0, 0xFFFF), qpn=qpns, psn=qpns, gid=gids)
def test_a_pingpong_address_is_its_own_inverse(lid, qpn, psn, gid):
    dest = PingpongDest(qpn, psn, gid, lid)
    assert len(dest.build()) == 52
    assert PingpongDest.parse(dest.build()) == dest


def test_a_pingpong_address_reads_as_the_c_format():
    octets = PingpongDest(0x11, 0x84B82E, GID_10).build()
    assert octets == b"0000:000011:84b82e:00000000000000000000ffff0a4d000a\0"


@pytest.mark.parametrize("octets", [b"", bytes(52), b"0:1:2:3", b"zz" * 26, b"0" * 52])
def test_what_is_no_pingpong_address_is_said(octets):
    with pytest.raises(OobError, match="not a pingpong's address"):
        PingpongDest.parse(octets)


def test_pingpong_exchanges(ends):
    client, server = ends
    mine, theirs = PingpongDest(1, 2, GID_10), PingpongDest(3, 4, GID_11)

    def serve():
        received = pingpong_server_receives(server)
        pingpong_server_sends(server, theirs)
        return received

    assert both(lambda: pingpong_client(client, mine), serve) == [theirs, mine]


def test_a_pingpong_client_that_is_not_done(raw):
    server, bare = raw
    bare.sendall(b"over\0")
    with pytest.raises(OobError, match=r"says b'over\\x00' instead of 'done'"):
        pingpong_server_sends(server, PingpongDest(1, 2, GID_10))


# perftest


@given(
    st.builds(
        PerftestDest,
        qpn=qpns, psn=qpns, gid=gids,
        rkey=st.integers(0, 2**32 - 1), vaddr=st.integers(0, 2**64 - 1),
        out_reads=st.integers(0, 0xFFFF), srqn=st.integers(0, 2**32 - 1),
        lid=st.integers(0, 0xFFFF),
    )
)  # fmt: skip
def test_a_perftest_address_is_its_own_inverse(dest):
    assert len(dest.build()) == 108
    assert PerftestDest.parse(dest.build()) == dest


def test_a_perftest_address_of_linux_is_rebuilt():
    dest = PerftestDest.parse(LINUX_DEST)
    assert (dest.qpn, dest.psn, dest.rkey) == (0x11, 0x84B82E, 0x230)
    assert (dest.vaddr, dest.gid, dest.out_reads) == (0x561FCF93F000, GID_10, 1)
    assert dest.build() == LINUX_DEST


@pytest.mark.parametrize("octets", [bytes(108), LINUX_DEST[:60], LINUX_DEST.replace(b":", b" ")])
def test_what_is_no_perftest_address_is_said(octets):
    with pytest.raises(OobError, match="not a perftest's address"):
        PerftestDest.parse(octets)


def test_a_perftest_conversation(ends):
    client, server = (PerftestPeer(end, client=n == 0) for n, end in enumerate(ends))
    mine = [PerftestDest(1, 2, GID_10, rkey=7), PerftestDest(5, 6, GID_10, rkey=8)]
    theirs = [PerftestDest(3, 4, GID_11, vaddr=9), PerftestDest(7, 8, GID_11, vaddr=10)]
    measured = BwReport(64, 100, 1.5, 1.25, 0.001)

    def talk(peer, mtu, own, report):
        agreed = peer.negotiate(mtu)
        received = peer.exchange_all(own)
        peer.synchronise(own[0])
        reported = peer.report(report)
        peer.finish(own[0])
        return agreed, received, reported

    shown, got = both(
        lambda: talk(client, 5, mine, measured), lambda: talk(server, 3, theirs, BwReport())
    )
    assert shown == (Negotiated("6.06", 3, 4096, 64), theirs, BwReport())
    assert got == (Negotiated("6.06", 3, 4096, 64), mine, measured)


def test_a_client_of_linux_is_understood_byte_by_byte(raw):
    server, bare = raw
    own = PerftestDest(1, 2, GID_11)
    output = [LINUX_VERSION, struct.pack(">ii", 4096, 64), b"3\0", LINUX_DEST]
    output += [*LINUX_REPORT, LINUX_DEST, b"done\0"]
    bare.sendall(b"".join(output))
    peer = PerftestPeer(server, client=False)
    assert peer.negotiate(5) == Negotiated("6.06", 3, 4096, 64)
    assert peer.exchange(own) == PerftestDest.parse(LINUX_DEST)
    report = peer.report(BwReport())
    assert (report.size_bytes, report.iterations) == (64, 100)
    assert report.bw_peak == pytest.approx(0.0914, abs=1e-4)
    bare.shutdown(socket.SHUT_WR)
    peer.finish(own)
    bare.settimeout(1.0)
    answer = b"".join(iter(lambda: bare.recv(4096), b""))
    assert answer == (
        LINUX_VERSION + struct.pack(">ii", 4096, 64) + b"5\0" + own.build()
        + bytes(5 * 8) + own.build() + b"done\0"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("output", "agreed"), [(b"2\0", 2), (b"9\0", 4), (b"x\0", 4), (b"\0\0", 4)]
)
def test_an_mtu_that_is_none_leaves_ours(raw, output, agreed):
    server, bare = raw
    bare.sendall(LINUX_VERSION + struct.pack(">ii", 8192, 128) + output)
    negotiated = PerftestPeer(server, client=False).negotiate(4)
    assert negotiated == Negotiated("6.06", agreed, 8192, 128)


@pytest.mark.parametrize("version", [b"5.69", b"4.0", b"", b"new"])
def test_versions_that_perftest_refuses_are_refused(raw, version):
    server, bare = raw
    bare.sendall(version.ljust(16, b"\0"))
    with pytest.raises(OobError, match="speaks perftest's version"):
        PerftestPeer(server, client=False).negotiate(3)


def test_a_peer_that_is_gone_at_the_end_is_no_error(ends):
    client, server = ends
    server.write(LINUX_DEST)
    server.close()
    PerftestPeer(client, client=True).finish(PerftestDest(1, 2, GID_10))


class Recorded(PerftestPeer):
    """A peer of whose exchanges only the kind is kept."""

    def __init__(self):
        self.output = ""

    def exchange_all(self, own):
        self.output += "Q"
        return own

    def synchronise(self, own):
        self.output += "s"

    def report(self, own):
        self.output += "R"
        return own

    def finish(self, own):
        self.output += "F"


# As 4.5+0.17's programs were seen to do; c: the queue pairs are connected, r: the test runs.
@pytest.mark.parametrize(
    ("test", "options", "output"),
    [
        ("write_bw", {}, "QcQsrsRF"),
        ("read_bw", {}, "QcQsrsRF"),
        ("atomic_bw", {}, "QcQsrsRF"),
        ("send_bw", {}, "QcsQsrF"),
        ("send_lat", {}, "QcsQsrF"),
        ("write_lat", {}, "sQcQsr"),
        ("read_lat", {}, "sQcQsrF"),
        ("atomic_lat", {}, "sQcQsrF"),
        ("write_bw", {"duplex": True}, "QcQssrRF"),
        ("read_bw", {"duplex": True}, "QcQssrRF"),
        ("send_bw", {"duplex": True}, "QcsQsrRF"),
        ("write_bw", {"duplex": True, "duration": True}, "QcQssrRF"),
        ("send_bw", {"duplex": True, "duration": True}, "QcsQsrF"),
        ("write_bw", {"all_sizes": True}, "QcQsrrsRF"),
        ("send_bw", {"all_sizes": True}, "QcsQsrssrsF"),
        ("send_lat", {"all_sizes": True}, "QcsQsrsrF"),
        ("write_bw", {"all_sizes": True, "duplex": True}, "QcQssrsRsrsRF"),
    ],
)
def test_what_is_said_when(test, options, output):
    own = [PerftestDest(1, 2, GID_10)]
    peer = Recorded()
    conversation = Conversation(peer, test, **options)
    conversation.meet(own)
    peer.output += "c"
    conversation.connected(own)
    for _ in range(1 + bool(options.get("all_sizes"))):
        conversation.before_run(own[0])
        peer.output += "r"
        conversation.after_run(own[0], BwReport())
    conversation.part(own[0], BwReport())
    assert peer.output == output


@pytest.mark.parametrize("test", ["", "write", "write_", "write_iops", "ib_write_bw"])
def test_a_test_that_perftest_has_not(test):
    with pytest.raises(OobError, match="perftest has no test"):
        Conversation(Recorded(), test)


# Silence, and worse


def test_nobody_is_there():
    with OobServer(0, HERE) as server:
        port = server.port
    began = time.monotonic()
    with pytest.raises(OobError, match=f"cannot connect to {HERE}:{port}: Connection refused"):
        OobSocket.connect(HERE, port, 0.3)
    assert 0.2 < time.monotonic() - began < PATIENCE_S


def test_a_server_may_start_later():
    with OobServer(0, HERE) as server:
        port = server.port

    def serve_late():
        time.sleep(0.2)
        with OobServer(port, HERE) as late:
            return late.accept(5.0).peer

    def connect():
        with OobSocket.connect(HERE, port, 5.0) as client:
            return client.peer

    assert both(serve_late, connect)[1] == f"{HERE}:{port}"


def test_nobody_comes():
    with OobServer(0, HERE) as server, pytest.raises(OobError, match=r"nobody came .* 0\.1 s"):
        server.accept(0.1)


def test_a_port_that_is_taken():
    with OobServer(0, HERE) as server, pytest.raises(OobError, match="Address already in use"):
        OobServer(server.port, HERE)


def test_a_peer_that_falls_silent(raw):
    server, bare = raw
    bare.sendall(b"0000:")
    with pytest.raises(OobError, match="5 of 52 bytes came: silence"):
        pingpong_server_receives(server)


@pytest.fixture
def trickle(raw):
    """Our end; the bare one sends a byte every 20 ms for `TALK_S`, or until the test is over."""
    server, bare = raw
    over = threading.Event()

    def talk():
        with contextlib.suppress(OSError):  # our end has hung up
            for _ in range(50 * TALK_S):
                bare.sendall(b"x")
                if over.wait(0.02):
                    return

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    yield server
    over.set()
    thread.join(TALK_S)


def test_a_peer_that_trickles_does_not_prolong_a_read(trickle):
    began = time.monotonic()
    with pytest.raises(OobError, match=r"\d+ of 200 bytes came: silence"):
        trickle.read(200)
    assert time.monotonic() - began < PATIENCE_S


def test_a_peer_that_trickles_does_not_prolong_a_goodbye(trickle):
    began = time.monotonic()
    trickle.say_goodbye(b"done\0")
    assert 0.2 < time.monotonic() - began < PATIENCE_S


def test_a_peer_that_floods_does_not_prolong_a_goodbye():
    def flood(end):
        until = time.monotonic() + TALK_S
        with contextlib.suppress(OSError):  # our end has hung up
            while time.monotonic() < until:
                end.sendall(bytes(1 << 16))

    with (
        OobServer(0, HERE) as server,
        socket.create_connection((HERE, server.port)) as bare,
        server.accept(1.0, 10.0) as accepted,
    ):
        thread = threading.Thread(target=flood, args=(bare,), daemon=True)
        thread.start()
        began = time.monotonic()
        accepted.say_goodbye(b"done\0")
        assert time.monotonic() - began < PATIENCE_S
    thread.join(TALK_S)


def test_a_peer_that_hangs_up(raw):
    server, bare = raw
    bare.sendall(b"0000:")
    bare.shutdown(socket.SHUT_WR)
    with pytest.raises(OobError, match="hung up after 5 of 52 bytes"):
        pingpong_server_receives(server)


def test_a_name_that_is_none():
    with pytest.raises(OobError, match=r"cannot connect to no\.such\.host\.invalid"):
        OobSocket.connect("no.such.host.invalid", 1, 0.1)
