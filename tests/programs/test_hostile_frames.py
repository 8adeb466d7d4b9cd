# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody sends the programs of a host anything at all, through the fabric.

Frames for a queue pair come from native/fuzz/library_frames.cpp. The long form builds the library
with sanitizers, too.
"""

import contextlib
import os
import random
import re
import socket
import subprocess
from pathlib import Path

import pytest

from softroce_lab import paths
from softroce_lab.programs.device import beside, device
from softroce_lab.programs.rdmacm import host_service as service
from softroce_lab.programs.rdmacm.connection import Send, Way, rdma_cm_event_type
from softroce_lab.programs.rdmacm.mad_port import frame_of, mad_in
from softroce_lab.telemetry import counters_file, program_losses
from tests import native_build
from tests.programs.pair import TIMEOUT_S, Pair, ended, finished
from tests.programs.rdmacm.test_host_service import Program
from tests.programs.test_call_fuzz import built_with_sanitizers
from tests.programs.test_shares import service_of

FRAMES, FULL_FRAMES, RUN_S = 200_000, 10_000_000, 7200
ARRIVE = 0.5  # of the hostile frames, at least: others name another share, or are no packets
HONEST = 0.5  # frames of the honest peer, at most, for each hostile one
LOST = 0.05
ASAN = "detect_leaks=0:detect_odr_violation=0:quarantine_size_mb=16"  # both have the engine
MADS, FULL_MADS, BATCH = 10_000, 1_000_000, 50
PORT = 7174  # of rping
MOST_GROWTH_BYTES = 32 << 20
LOCAL_COMM_ID = slice(24, 28)  # of a MAD, behind its header: IBA 12.6.5
ETH_P_ALL, LONGEST_BYTES = 3, 2048
REQUEST = rdma_cm_event_type.RDMA_CM_EVENT_CONNECT_REQUEST


@pytest.fixture(scope="module")
def harness(pair):
    """`pair` has installed what the build needs."""
    native_build.fuzz("library_frames")
    return native_build.BUILD / "library_frames"


@pytest.mark.full("verbs-frames")
def test_no_frame_harms_a_program(pair, harness, full, tmp_path):
    """10 million mutated frames at a live queue pair of libibverbs, under sanitizers.

    It has the second share of its port. Nor is the program harmed that has the first.
    """
    frames = FULL_FRAMES if full else FRAMES
    library = built_with_sanitizers() if full else paths.verbs_library()
    kept, losses = tmp_path / "kept", tmp_path / "losses"
    kept.mkdir()
    losses.mkdir()
    settings = {"LD_LIBRARY_PATH": library.parent, "ASAN_OPTIONS": ASAN,
                "SOFTROCE_COUNTERS": kept, "SOFTROCE_LOSSES": losses}  # fmt: skip
    words = ["env", *(f"{name}={value}" for name, value in settings.items()), harness]
    pingpong = ["ibv_rc_pingpong", "-g", "0", "-c", "-p", "18631"]
    with ended(pair.start("h1", *pingpong)) as neighbour, namespace(pair, "h2") as far:
        pair.await_listener(neighbour, 18631, "h1")
        where = far, "eth1", str(pair.address("h2"))
        with ended(pair.start("h1", *words, *where, str(frames), "20261126")) as attack:
            done = finished(attack, RUN_S)
        assert done.returncode == 0, done.stderr[-4000:]
        assert pair.run("h2", *pingpong, str(pair.address("h1"))).returncode == 0
        assert finished(neighbour).returncode == 0
    sent, connections = map(int, re.fullmatch(r"(\d+) frames, (\d+) connections\n",
                                              done.stdout).groups())  # fmt: skip
    assert sent == frames
    assert connections > frames / 2000, done.stdout  # it was alive, and broken again and again
    [counted] = kept.iterdir()
    assert counted.name.endswith(".library_frames")
    counts = counters_file.parse(counted.read_bytes()).counts
    lost = counts["rx_dropped"] + counts["rx_ring_full"] + counts["rx_fill_ring_empty"]
    assert ARRIVE * frames < counts["frames_received"] + lost < frames * (1 + HONEST)
    assert lost < LOST * frames
    [noted] = losses.iterdir()
    found = program_losses.parse(noted.read_bytes())
    assert program_losses.NAK_RECEIVED in found["kind"]
    assert found["kind"].max() < len(program_losses.KINDS)
    print(done.stdout, counts["frames_received"], "received", len(found), "records of losses")


@contextlib.contextmanager
def namespace(pair, host):
    """A path of the host's network namespace."""
    with pair.lab.enter(host):
        fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        yield f"/proc/{os.getpid()}/fd/{fd}"
    finally:
        os.close(fd)


def test_the_harness_ends_with_an_error_if_its_arguments_are_wrong(harness):
    words = ["/proc/self/ns/net", "lo", "nowhere", "many", "1"]
    done = subprocess.run([harness, *words], timeout=TIMEOUT_S, check=False, capture_output=True)
    assert done.returncode == 2


# ---------------------------------------------------------------- connection management


class Listener(Program):
    """A program at a host's connection manager, which decides about requests by chance."""

    def __init__(self, pair, host):
        with pair.lab.enter(host):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(f"\0{beside.ADDRESSES[0]}")
        self.programs, self.gids = {}, device.gids(pair.lab.plan.node(host).ports[0])
        self.stream, self.decided = random.Random(1), 0
        super().__init__(self)
        self.id = self.listening(port=PORT)

    def send(self, message):
        self.socket.send(message)
        while len(message) == service.CALL.size and not self.replies:
            self.take(self.socket.recv(LONGEST_BYTES))

    def close(self):
        self.socket.close()

    def decide(self):
        """About all that the service has said; its answer paces the sender."""
        self.call("attributes", self.id)
        for event in self.events:
            if event.event == REQUEST:
                self.decided += 1
                self.call(self.stream.choice(("accept", "reject", "destroy")), event.id, qpn=9)
        self.events.clear()


@pytest.mark.full("verbs-mads")
def test_no_message_of_connection_management_harms_a_host(pair, full):
    """1 million mutated messages at the connection manager of a host that listens."""
    honest = Pair(pair.lab, server="h1", client="h2")
    server = "rping", "-s", "-a", str(pair.address("h1"))
    client = "rping", "-c", "-a", str(pair.address("h1")), "-C", "3"
    with ended(pair.start("h1", "sleep", str(RUN_S))), packet_socket(pair, "h2") as wire:
        honest.connect(server, client)
        said = [found for frame in waiting(wire) if (found := mad_in(frame))]
        to_h1 = said[0][0]  # the client begins
        mads = [mad for way, mad in said if way == to_h1]
        assert len(mads) >= 3  # REQ, RTU, and what ends the connection
        manager = service_of(pair, "h1")
        before = resident_bytes(manager)
        with contextlib.closing(Listener(pair, "h1")) as listener:
            way = Way(local=to_h1.peer, peer=to_h1.local)
            stream = random.Random(20261130)
            for psn in range(FULL_MADS if full else MADS):
                wire.send(frame_of(Send(way, mutated(stream, mads)), psn))
                if psn % BATCH == 0:
                    listener.decide()
        assert listener.decided > 20
        assert service_of(pair, "h1") == manager
        assert resident_bytes(manager) < before + MOST_GROWTH_BYTES
        honest.connect(server, client)


def mutated(stream, mads):
    octets = bytearray(stream.choice(mads))
    if stream.getrandbits(1):
        octets[LOCAL_COMM_ID] = stream.randbytes(4)  # another connection
    for _ in range(stream.choice((0, 1, 1, 8))):
        octets[stream.randrange(len(octets))] = stream.getrandbits(8)
    return bytes(octets[: stream.randrange(len(octets)) if stream.random() < 1 / 16 else None])


@contextlib.contextmanager
def packet_socket(pair, host):
    """At the host's port; it has all that the port sends and receives, too."""
    with pair.lab.enter(host):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        made.bind(("eth1", 0))
    with made:
        yield made


def waiting(wire):
    """The frames that came."""
    with contextlib.suppress(BlockingIOError):
        while True:
            yield wire.recv(LONGEST_BYTES, socket.MSG_DONTWAIT)


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
