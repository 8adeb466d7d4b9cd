# SPDX-License-Identifier: GPL-2.0-or-later
"""Our RC over a veth pair, and the kernel's rxe over the same one: for `lab bench verbs --in-guest`
and `lab bench programs`.

All inside one kernel host with two processors, one after the other in each round: RC WRITEs of
1 MiB with a path MTU of 2 KiB, both ends on the one machine.

    ours     softroce-veth (native/veth): two RNICs over AF_XDP in generic mode, a thread each
    library  ib_write_bw over native/verbs at either end: an RNIC in each process
    rxe      ib_write_bw between rxe devices at the two ends. The device's sockets are those of the
             initial network namespace, so both ends are there, and rules lead what one sends to
             the other through the pair instead of the loopback device.
"""

from __future__ import annotations

import dataclasses
import io
import re
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from softroce_lab import topology
from softroce_lab.bench.rdma.perftest import write_bw_rate
from softroce_lab.errors import RunError
from softroce_lab.fabric import lab as fabric
from softroce_lab.fabric.verbs.device import NAME as DEVICE
from softroce_lab.kernel_host.guest import Guest
from softroce_lab.paths import native_program, verbs_library
from softroce_lab.plan.plan import Plan
from softroce_lab.statistics import Interval, median_interval

MESSAGE_BYTES, PATH_MTU, DEPTH = 1 << 20, 2048, 128
_CPUS = 2
_ATTEMPTS = 3
_FOLDER = "/run/softroce"
_MAP = "/sys/fs/bpf/softroce-veth"
_OURS, _NEAR, _FAR = "softroce-veth", "va", "vb"
_ADDRESSES = {_NEAR: "10.9.0.1", _FAR: "10.9.0.2"}
_STEP_S, _RUN_S = 30.0, 60.0
_LIBRARIES = {"LD_LIBRARY_PATH": _FOLDER}
_TERMINAL = 24, 200  # a program prints to a terminal at once, to a pipe at its end

_PREPARE = """
set -e
mkdir -p $FOLDER
mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
modprobe veth
ip link add $NEAR type veth peer name $FAR
for end in $NEAR $FAR; do ip link set $end mtu 2200 up; done
ip address add $NEAR_ADDRESS/32 dev $NEAR
ip address add $FAR_ADDRESS/32 dev $FAR
for where in all $NEAR $FAR; do
  echo 1 > /proc/sys/net/ipv4/conf/$where/accept_local
  echo 0 > /proc/sys/net/ipv4/conf/$where/rp_filter
done
ip neighbour replace $FAR_ADDRESS dev $NEAR nud permanent lladdr $(cat /sys/class/net/$FAR/address)
ip neighbour replace $NEAR_ADDRESS dev $FAR nud permanent lladdr $(cat /sys/class/net/$NEAR/address)
ip route add $FAR_ADDRESS/32 dev $NEAR src $NEAR_ADDRESS table 100
ip route add $NEAR_ADDRESS/32 dev $FAR src $FAR_ADDRESS table 100
ip rule add pref 10 iif $NEAR lookup local
ip rule add pref 11 iif $FAR lookup local
ip rule add pref 20 lookup 100
ip rule add pref 100 lookup local
ip rule del pref 0
for end in $NEAR $FAR; do rdma link add rxe_$end type rxe netdev $end; done
"""
_DETACH = """
for end in $NEAR $FAR; do ip link set $end xdpgeneric off; done
rm -f $MAP
"""
_SETTINGS = """\
device {device}
guid {ifindex}
interface {near}
ifindex {ifindex}
mac 0x{mac}
next_hop_mac 0x{far_mac}
gid ::ffff:{address}
path_mtu {path_mtu}
generic 1
xsks_map {map}
"""  # native/verbs/settings.hpp


Measure: TypeAlias = Callable[[], float]


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


def run(
    rounds: int,
    seconds: float,
    name: str,
    say: Callable[[str], None],
    *,
    ours: Callable[[VethPair], Measure] = lambda pair: pair.ours,
) -> Outcome:
    """Measure. EnvironmentLackError as of kernel hosts; the guest is gone afterwards."""
    with fabric.owned(_plan(name), say=say) as lab:
        pair = VethPair(lab.guest(lab.plan.kernel_hosts[0].name), max(round(seconds), 2))
        measure = ours(pair)
        outcome = Outcome([], [])
        for number in range(rounds):
            say(f"round {number + 1} of {rounds} in the guest")
            outcome.ours.append(measure())
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
        self._put(native_program(_OURS))

    def ours(self) -> float:
        """Bytes a second of our RC."""
        argv = [f"{_FOLDER}/{_OURS}", _NEAR, _FAR, str(MESSAGE_BYTES), self._seconds, _MAP]
        done = self._guest.run(argv, _RUN_S, env=_LIBRARIES).check()
        self._script(_DETACH)
        return float(done.text)

    def rxe(self) -> float:
        """Bytes a second of the kernel's. RunError."""
        return self._write_bw({end: ["-x", "1", "-d", f"rxe_{end}"] for end in _ADDRESSES}, {})

    def library(self) -> Measure:
        """Puts native/verbs there; what measures bytes a second of ib_write_bw over it.

        EnvironmentLackError without the library.
        """
        self._put(verbs_library())
        for near, far in ((_NEAR, _FAR), (_FAR, _NEAR)):
            self._guest.put(_settings_file(near), self._settings(near, far).encode())
        return self._library

    def _library(self) -> float:
        self._guest.run([f"{_FOLDER}/{_OURS}", _NEAR, _FAR, _MAP], _STEP_S, env=_LIBRARIES).check()
        try:
            return self._write_bw({end: ["-x", "0"] for end in _ADDRESSES}, _LIBRARIES)
        finally:
            self._script(_DETACH)

    def _settings(self, near: str, far: str) -> str:
        """Of the RNIC at one end, as native/verbs/settings.cpp reads them."""
        facts = {
            (end, fact): self._guest.get(f"/sys/class/net/{end}/{fact}").decode().strip()
            for end in (near, far)
            for fact in ("address", "ifindex")
        }
        return _SETTINGS.format(
            device=DEVICE,
            near=near,
            ifindex=facts[near, "ifindex"],
            mac=facts[near, "address"].replace(":", ""),
            far_mac=facts[far, "address"].replace(":", ""),
            address=_ADDRESSES[near],
            path_mtu=PATH_MTU,
            map=_MAP,
        )

    def _write_bw(self, own: Mapping[str, list[str]], env: Mapping[str, str]) -> float:
        """Bytes a second between both ends, whose options are given. RunError.

        ib_write_bw counts nothing where the guest was not scheduled meanwhile.
        """
        for _ in range(_ATTEMPTS):
            if rate := self._attempt(own, env):
                return rate
        raise RunError(f"ib_write_bw moved nothing, {_ATTEMPTS} times", hint="is the machine busy?")

    def _attempt(self, own: Mapping[str, list[str]], env: Mapping[str, str]) -> float:
        argv = [
            "ib_write_bw", "-s", str(MESSAGE_BYTES), "-m", str(PATH_MTU), "-t", str(DEPTH),
            "-D", self._seconds, "-F",
        ]  # fmt: skip
        client = [*argv, *own[_NEAR], "127.0.0.1"]
        its = {end: {**env, "SOFTROCE_VERBS": _settings_file(end)} for end in own}
        server = self._guest.start([*argv, *own[_FAR]], tty=_TERMINAL, env=its[_FAR])
        with server as there:
            there.expect(b"Waiting for client", _STEP_S)
            done = self._guest.run(client, _RUN_S, env=its[_NEAR]).check()
            there.wait(_STEP_S)
        return write_bw_rate(done.text, MESSAGE_BYTES)

    def _put(self, *objects: Path) -> None:
        packed = _packed(*objects)
        self._guest.run(["tar", "xz", "-C", _FOLDER], _STEP_S, input=packed).check()

    def _script(self, text: str) -> None:
        env = {
            "FOLDER": _FOLDER, "NEAR": _NEAR, "FAR": _FAR, "MAP": _MAP,
            "NEAR_ADDRESS": _ADDRESSES[_NEAR], "FAR_ADDRESS": _ADDRESSES[_FAR],
        }  # fmt: skip
        self._guest.run(["sh"], _STEP_S, input=text.encode(), env=env).check()


def _settings_file(end: str) -> str:
    return f"{_FOLDER}/{end}.settings"


def _packed(*objects: Path) -> bytes:
    """Programs or libraries, and the libraries of theirs that a guest may lack, as tar.gz."""
    listed = subprocess.run(
        ["/usr/bin/ldd", *objects], capture_output=True, text=True, check=True, timeout=_STEP_S
    )
    libraries = [Path(found) for found in re.findall(r"=> (/\S+)", listed.stdout)]
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz", dereference=True) as archive:
        for each in objects:
            archive.add(each, each.name)
        for library in libraries:
            if not re.match(r"lib(c|m)\.so|ld-linux", library.name):
                archive.add(library, library.name)
    return memory.getvalue()
