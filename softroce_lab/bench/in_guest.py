# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench verbs --in-guest`: our RC over a veth pair, and the kernel's rxe over the same one.

Both inside one kernel host with two processors, one after the other in each round: RC WRITEs of
1 MiB with a path MTU of 2 KiB, both ends on the one machine.

    ours  softroce-veth (native/veth): two RNICs over AF_XDP in generic mode, a thread each
    rxe   ib_write_bw between rxe devices at the two ends. The device's sockets are those of the
          initial network namespace, so both ends are there, and rules lead what one sends to the
          other through the pair instead of the loopback device.
"""

from __future__ import annotations

import dataclasses
import io
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from softroce_lab import topology
from softroce_lab.errors import RunError
from softroce_lab.fabric import lab as fabric
from softroce_lab.kernel_host.guest import Guest
from softroce_lab.paths import native_program
from softroce_lab.plan.plan import Plan
from softroce_lab.statistics import Interval, median_interval

MESSAGE_BYTES, PATH_MTU, DEPTH = 1 << 20, 2048, 128
_CPUS = 2
_ATTEMPTS = 3
_FOLDER = "/run/softroce"
_MAP = "/sys/fs/bpf/softroce-veth"
_OURS, _NEAR, _FAR = "softroce-veth", "va", "vb"
_STEP_S, _RUN_S = 30.0, 60.0
_TERMINAL = 24, 200  # a program prints to a terminal at once, to a pipe at its end
_MIB = 1 << 20

_PREPARE = """
set -e
mkdir -p $FOLDER
mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
modprobe veth
ip link add $NEAR type veth peer name $FAR
for end in $NEAR $FAR; do ip link set $end mtu 2200 up; done
ip address add 10.9.0.1/32 dev $NEAR
ip address add 10.9.0.2/32 dev $FAR
for where in all $NEAR $FAR; do
  echo 1 > /proc/sys/net/ipv4/conf/$where/accept_local
  echo 0 > /proc/sys/net/ipv4/conf/$where/rp_filter
done
ip neighbour replace 10.9.0.2 dev $NEAR nud permanent lladdr $(cat /sys/class/net/$FAR/address)
ip neighbour replace 10.9.0.1 dev $FAR nud permanent lladdr $(cat /sys/class/net/$NEAR/address)
ip route add 10.9.0.2/32 dev $NEAR src 10.9.0.1 table 100
ip route add 10.9.0.1/32 dev $FAR src 10.9.0.2 table 100
ip rule add pref 10 iif $NEAR lookup local
ip rule add pref 11 iif $FAR lookup local
ip rule add pref 20 lookup 100
ip rule add pref 100 lookup local
ip rule del pref 0
for end in $NEAR $FAR; do rdma link add rxe_$end type rxe netdev $end; done
"""
_DETACH = """
for end in $NEAR $FAR; do ip link set $end xdpgeneric off; done
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Bytes a second of either, a list of rounds."""

    ours: list[float]
    rxe: list[float]

    @property
    def ratio(self) -> Interval:
        """Ours over rxe's, within rounds."""
        return median_interval([a / b for a, b in zip(self.ours, self.rxe, strict=True)])

    def rates_bps(self) -> dict[str, Interval]:
        """Bits a second."""
        return {
            name: median_interval([8 * each for each in values])
            for name, values in (("ours in guest", self.ours), ("rxe in guest", self.rxe))
        }


def run(rounds: int, seconds: float, name: str, say: Callable[[str], None]) -> Outcome:
    """Measure. EnvironmentLackError as of kernel hosts; the guest is gone afterwards."""
    with fabric.owned(_plan(name), say=say) as lab:
        pair = VethPair(lab.guest(lab.plan.kernel_hosts[0].name), max(round(seconds), 2))
        outcome = Outcome([], [])
        for number in range(rounds):
            say(f"round {number + 1} of {rounds} in the guest")
            outcome.ours.append(pair.ours())
            outcome.rxe.append(pair.rxe())
        return outcome


def _plan(name: str) -> Plan:
    plan = topology.load("kernel-peer", name=name)
    nodes = tuple(
        node if node.guest is None
        else dataclasses.replace(node, guest=dataclasses.replace(node.guest, cpus=_CPUS))
        for node in plan.nodes
    )  # fmt: skip
    return dataclasses.replace(plan, nodes=nodes)


class VethPair:
    """A veth pair in a guest, with an rxe device at either end."""

    def __init__(self, guest: Guest, seconds: int) -> None:
        self._guest = guest
        self._seconds = str(seconds)
        self._script(_PREPARE)
        packed = _packed(native_program(_OURS))
        guest.run(["tar", "xz", "-C", _FOLDER], _STEP_S, input=packed).check()

    def ours(self) -> float:
        """Bytes a second of our RC."""
        argv = [f"{_FOLDER}/{_OURS}", _NEAR, _FAR, str(MESSAGE_BYTES), self._seconds, _MAP]
        done = self._guest.run(argv, _RUN_S, env={"LD_LIBRARY_PATH": _FOLDER}).check()
        self._script(_DETACH)
        return float(done.text)

    def rxe(self) -> float:
        """Bytes a second of the kernel's. RunError."""
        for _ in range(_ATTEMPTS):
            if rate := self._rxe():
                return rate
        raise RunError(f"ib_write_bw moved nothing, {_ATTEMPTS} times", hint="is the machine busy?")

    def _rxe(self) -> float:
        """The same, or 0 where the guest was not scheduled while ib_write_bw counted."""
        options = [
            "-x", "1", "-s", str(MESSAGE_BYTES), "-m", str(PATH_MTU), "-t", str(DEPTH),
            "-D", self._seconds, "-F",
        ]  # fmt: skip
        server = ["ib_write_bw", "-d", f"rxe_{_FAR}", *options]
        client = ["ib_write_bw", "-d", f"rxe_{_NEAR}", *options, "127.0.0.1"]
        with self._guest.start(server, tty=_TERMINAL) as there:
            there.expect(b"Waiting for client", _STEP_S)
            done = self._guest.run(client, _RUN_S).check()
            there.wait(_STEP_S)
        found = re.search(rf"^ {MESSAGE_BYTES} +\d+ +[\d.]+ +([\d.]+)", done.text, re.MULTILINE)
        if found is None:
            raise RunError(f"ib_write_bw printed no result; its output: {done.text[-400:].strip()}")
        return float(found[1]) * _MIB

    def _script(self, text: str) -> None:
        env = {"FOLDER": _FOLDER, "NEAR": _NEAR, "FAR": _FAR}
        self._guest.run(["sh"], _STEP_S, input=text.encode(), env=env).check()


def _packed(program: Path) -> bytes:
    """The program and the libraries that a guest may lack, as tar.gz."""
    listed = subprocess.run(
        ["/usr/bin/ldd", str(program)], capture_output=True, text=True, check=True, timeout=_STEP_S
    )
    libraries = [Path(found) for found in re.findall(r"=> (/\S+)", listed.stdout)]
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz", dereference=True) as archive:
        archive.add(program, program.name)
        for library in libraries:
            if not re.match(r"lib(c|m)\.so|ld-linux", library.name):
                archive.add(library, library.name)
    return memory.getvalue()
