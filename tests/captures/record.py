# SPDX-License-Identifier: GPL-2.0-or-later
"""Records what two kernel hosts say to each other: the captures of this folder named rxe_verbs_*.

    python -m tests.captures.record [NAME ...]

It boots the topology `kernel-two`, has tests/interop/verbs_peer.py run a scenario in both guests,
and lets tcpdump in the responder's write down what that one hears and says. Each scenario's bytes
are known; PSNs are chosen so that they wrap.
"""

import contextlib
import signal
import sys
import time

from softroce_lab import topology
from softroce_lab.fabric import lab as fabric
from softroce_lab.faults import live
from softroce_lab.plan import locate
from tests.interop.rxe import Remote
from tests.interop.verbs_peer import content
from tests.native.frames import CAPTURES

OLD, NEW = "k2", "k1"  # kernels 6.1 and 6.12
LINK = "k1<->s1"
DUMP = "/run/dump.pcap"
SOURCE, TARGET = 0, 1 << 20
RNR_S = 0.03  # without a receive; the requester asks again meanwhile
SETTLE_S = 0.5
BUFFER_KIB = "32768"  # of tcpdump
WRONG_KEY = 0x1234567
OUTSIDE = 64 << 20  # of the responder's memory


class Guests:
    """Two ends, and the wire between them."""

    def __init__(self, lab, remotes, responder):
        self.lab = lab
        self.guest = lab.guest(responder)
        self.other = remotes[responder]
        self.one = remotes[NEW if responder == OLD else OLD]
        self.here, self.there = self.one.hello(), self.other.hello()
        self._psn = 0xFFFFF8
        interfaces = self.guest.run(["ls", "/sys/class/net"]).text.split()
        self.interface = next(each for each in interfaces if each != "lo")

    def connect(self, kind, mtu, **attributes):
        """Fresh queue pairs at both ends; the requester's PSNs are about to wrap."""
        psn, peer_psn = self._psn, 0x500000
        ours = self.one.create(kind=kind, psn=psn)["qpn"]
        theirs = self.other.create(kind=kind, psn=peer_psn)["qpn"]
        self.one.connect(gid=self.there["gid"], qpn=theirs, psn=peer_psn, mtu=mtu, **attributes)
        self.other.connect(gid=self.here["gid"], qpn=ours, psn=psn, mtu=mtu)
        self._psn = psn + 0x1000 & 0xFFFFFF | 0xFFFFF0

    def ask(
        self, opcode, length, *, there=0, rkey=None, count=1, seed=1, stride=0, wait=True, **more
    ):
        """One request or several, to their ends."""
        self.one.fill(at=SOURCE, length=length + (count - 1) * stride, seed=seed)
        self.one.post(
            opcode=opcode, at=SOURCE, length=length, count=count, stride=stride,
            there=self.there["addr"] + TARGET + there,
            rkey=self.there["rkey"] if rkey is None else rkey, **more,
        )  # fmt: skip
        return self.one.poll(count=count, timeout_s=30)["completions"] if wait else []

    def receive(self, length, count=1, stride=0):
        self.other.receive(at=TARGET, length=length, count=count, stride=stride)

    def set_loss(self, percent):
        links = [half[0] for half in locate.halves(self.lab.plan, LINK)]

        def change(plan):
            if not percent:
                return live.clear_on(plan, links)
            return live.set_on(plan, links, live.parse_impairments(["loss", f"{percent}%"]))

        self.lab.faults.change(change, time.monotonic_ns)

    @contextlib.contextmanager
    def captured(self):
        """What the responder hears and says meanwhile, written down."""
        options = ["-i", self.interface, "-U", "--immediate-mode", "-B", BUFFER_KIB, "-w", DUMP]
        with self.guest.start(["tcpdump", *options, "udp port 4791"]) as dump:
            while b"listening" not in dump.stderr:
                dump.poll()
                time.sleep(0.05)
            yield
            time.sleep(SETTLE_S)
            dump.kill(signal.SIGINT)
            output = dump.wait(10).stderr
            assert b"\n0 packets dropped by kernel" in output, output


def operations(guests):
    """RC: every operation at sizes around the path MTU."""
    for mtu in (256, 1024):
        guests.connect("rc", mtu)
        for seed, size in enumerate((0, 1, mtu - 1, mtu, mtu + 1, 3 * mtu + 2), start=1):
            guests.other.fill(at=TARGET, length=size + 8, seed=seed + 50)
            guests.ask("write", size, seed=seed)
            guests.ask("read", size, seed=seed)
            for opcode in ("send", "send_imm", "write_imm"):
                guests.receive(max(size, 1))
                guests.ask(opcode, size, seed=seed, imm=0x11223344 + seed)
        guests.other.fill(at=TARGET, length=64, seed=7)
        value = int.from_bytes(content(7, 8), "little")
        guests.ask("fetch_add", 8, first=(1 << 64) - 1)
        guests.ask("cmp_swap", 8, first=value, second=5)  # not what is there: one less is
        guests.ask("cmp_swap", 8, first=value - 1, second=5)


def refusals(guests):
    """RC: what is answered by a NAK. Each breaks its connection, but for the first."""
    guests.connect("rc", 256)
    guests.ask("send", 600, count=3, stride=640, wait=False)  # no receive yet: RNR
    time.sleep(RNR_S)
    guests.receive(600, count=3, stride=640)
    assert len(guests.one.poll(count=3, timeout_s=30)["completions"]) == 3
    for opcode, length, more in (
        ("write", 600, {"rkey": WRONG_KEY}),
        ("write", 600, {"there": OUTSIDE}),
        ("read", 600, {"rkey": WRONG_KEY}),
        ("read", 600, {"there": OUTSIDE}),
        ("fetch_add", 8, {"rkey": WRONG_KEY}),
        ("cmp_swap", 8, {"there": OUTSIDE}),
    ):
        guests.connect("rc", 256)
        guests.ask("write", 64)
        guests.ask(opcode, length, **more)
    guests.connect("rc", 256)
    guests.receive(500)
    guests.ask("send", 600)  # longer than its receive


def losses(guests, percent=6, messages=16):
    """RC: requests and answers get lost, and are sent again."""
    guests.set_loss(percent)
    for seed, opcode in enumerate(("send", "write", "read", "fetch_add"), start=1):
        size = 8 if opcode == "fetch_add" else 1200
        guests.connect("rc", 256)
        guests.other.fill(at=TARGET, length=messages * 1280, seed=seed)
        if opcode == "send":
            guests.receive(size, count=messages, stride=1280)
        guests.ask(
            opcode, size, count=messages, stride=1280 if size > 8 else 64, seed=seed, first=seed
        )
    guests.set_loss(0)


def few_losses(guests):
    """The same, of more messages with fewer losses."""
    losses(guests, percent=2, messages=40)


def unreliable(guests):
    """UC WRITE, with immediate too, and SEND, whole and with losses; UD of several sizes."""
    for loss in (0, 6):
        guests.set_loss(loss)
        guests.connect("uc", 256)
        guests.receive(1200, count=16, stride=1280)
        for opcode in ("write", "send", "write_imm", "send_imm"):
            guests.ask(opcode, 1200, count=4, stride=1280, imm=0x55667788)
    guests.set_loss(0)
    guests.connect("ud", 1024)
    guests.receive(1064, count=8, stride=1280)
    for size in (0, 1, 2, 3, 1023, 1024):
        guests.ask("send", size)
    guests.ask("send_imm", 5, imm=0x01020304)


SCENARIOS = {  # name: what is done, and who answers
    "rxe_verbs_rc": (operations, OLD),
    "rxe_verbs_nak": (refusals, OLD),
    "rxe_verbs_nak_new": (refusals, NEW),
    "rxe_verbs_loss": (losses, OLD),
    "rxe_verbs_loss_new": (losses, NEW),
    "rxe_verbs_few_losses": (few_losses, NEW),
    "rxe_verbs_uc_ud": (unreliable, OLD),
}


def main(names):
    with contextlib.ExitStack() as stack:
        lab = fabric.up(topology.load("kernel-two", name="record"), ephemeral=True)
        stack.callback(lab.down)
        remotes = {
            each: stack.enter_context(contextlib.closing(Remote(lab.guest(each))))
            for each in (OLD, NEW)
        }
        for name in names or SCENARIOS:
            scenario, responder = SCENARIOS[name]
            guests = Guests(lab, remotes, responder)
            with guests.captured():
                scenario(guests)
            path = CAPTURES / f"{name}.pcap"
            path.write_bytes(guests.guest.get(DUMP))
            print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
