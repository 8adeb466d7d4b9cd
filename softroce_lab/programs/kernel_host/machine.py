# SPDX-License-Identifier: GPL-2.0-or-later
"""The QEMU machine that a kernel host is, and what joins it to the lab.

Every rail of it is a veth in the node's namespace like any host's, with the host's program on it,
so probes, counters and faults see no difference. Behind that, a bridge leads to a tap device:

    switch  p2 ======= eth1 --- bridge --- tap      guest's eth1
            XDP        XDP                 QEMU's virtio-net

The MAC address of the plan is the guest's, and the veth end here has another one, for a bridge
takes for itself what is addressed to one of its ports. The tap has no virtio header: so the guest
is offered neither checksum offload nor segmentation offload, and what it sends is whole.

QEMU holds the tap, and is the only process in the namespace: with it, nothing stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import selectors
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import IO

from softroce_lab.errors import EnvironmentLackError
from softroce_lab.fabric.ledger.identity import boot_id
from softroce_lab.fabric.net import links, rtnetlink
from softroce_lab.fabric.net.rtnetlink import Ip
from softroce_lab.plan.plan import Guest, Node, Plan, Port
from softroce_lab.programs.kernel_host import guest
from softroce_lab.programs.kernel_host.image import Image, Say, cache

PROGRAM = "qemu-system-x86_64"
PACKAGE = "qemu-system-x86"
KVM = "kvm"
TCG = "tcg,thread=multi"
CONFIG = "opt/softroce_lab/config"  # in QEMU's fw_cfg, for agent.py

_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_FIRST_BRIDGE = 50  # ifindex; above what QEMU's taps get, below the plan's
# Emulated, the time-stamp counter is slow to prove itself, and what it gives way to is slower.
# The tests and initcalls left out take an emulated processor a second; no module is signed here.
# After an oops a kernel goes on with what is broken: better it ends, and prints why, with the
# warnings (level 4) that came before.
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=5 oops=panic panic=-1 tsc=reliable mitigations=off nokaslr "
    "audit=0 net.ifnames=0 nowatchdog cryptomgr.notests=1 "
    "initcall_blacklist=jent_mod_init,load_system_certificate_list"
)
# Taps and files are opened when it starts; nobody has to run a program or become somebody else.
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_SIOCSIFMTU, _SIOCSIFTXQLEN = 0x8922, 0x8943
_SEND_BYTES = 1 << 18  # that wait for a rail's link; then the guest's own queue holds back
_QUEUE_FRAMES = 4096  # that wait for a guest that was not scheduled

_KVM_DEVICE = Path("/dev/kvm")
_PROBE_S = 6.0  # under KVM it takes one
_WORD = b"softroce_lab: it does"
_REFUSAL = b"KVM internal error"


def program() -> str:
    """QEMU. EnvironmentLackError."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise EnvironmentLackError("QEMU, for kernel hosts", hint=f"apt install {PACKAGE}")
    return found


# --- Joining it to the lab -----------------------------------------------------------------------


def attach(node: Node, mtu: int) -> list[int]:
    """Descriptors of a tap for every rail, bridged to it; the thread is in the node's namespace.

    OSError, EnvironmentLackError.
    """
    taps: list[int] = []
    try:
        for rail, port in enumerate(node.ports):
            fd, name = _tap()
            taps.append(fd)
            _bridge(_FIRST_BRIDGE + rail, port, name, mtu)
    except BaseException:
        for fd in taps:
            os.close(fd)
        raise
    return taps


def _tap() -> tuple[int, str]:
    """A tap device, which lives as long as the descriptor is open, and its name."""
    try:
        fd = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        what = f"the kernel's tap devices ({_TUN}: {error.strerror})"
        raise EnvironmentLackError(what, hint="modprobe tun") from error
    request = struct.pack("16sH22x", b"lab-tap%d", _IFF_TAP | _IFF_NO_PI)
    try:
        answer = fcntl.ioctl(fd, _TUNSETIFF, request)
    except BaseException:
        os.close(fd)
        raise
    return fd, answer[:16].rstrip(b"\0").decode()


def _bridge(index: int, port: Port, tap: str, mtu: int) -> None:
    """Join a rail's port and its tap."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((_SIOCSIFMTU, mtu), (_SIOCSIFTXQLEN, _QUEUE_FRAMES)):
            fcntl.ioctl(control, request, struct.pack("16si20x", tap.encode(), value))
        with contextlib.suppress(OSError):  # of a machine that was here before
            rtnetlink.request([rtnetlink.no_link(index)])
        rtnetlink.request([rtnetlink.bridge(index, "lab-br%d")])
        rtnetlink.request(
            [rtnetlink.enslave(each, index) for each in (port.ifindex, socket.if_nametoindex(tap))]
        )
        for name in (tap, socket.if_indextoname(index)):
            links.raise_flags(control, name, links.IFF_UP)


# --- Its settings --------------------------------------------------------------------------------


def config(plan: Plan, node: Node, hosts: str) -> str:
    """What the guest's agent reads. `hosts` is what its /etc/hosts is to say."""
    gateways = links.gateways(plan)
    return json.dumps(
        {
            "name": node.name,
            "hosts": hosts,
            "network": _lines(_network(node, gateways, plan.mtu)),
            "routes": {version: _lines(_routes(node, version)) for version in (4, 6)},
            "rails": [port.name for port in node.ports],
        }
    )


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _network(node: Node, gateways: Mapping[int, str], mtu: int) -> Iterable[str]:
    """Lines for `ip -batch`: what links.py does at other hosts, but routes.

    With ARP, for the RDMA CM resolves nothing without; the neighbours are permanent all the same.
    """
    yield "link set dev lo up"
    for rail in range(len(node.ports)):
        yield f"link set dev eth{rail} name rail{rail}"
    for rail, port in enumerate(node.ports):
        yield f"link set dev rail{rail} name {port.name}"
        yield f"link set dev {port.name} addrgenmode none"
        yield f"link set dev {port.name} mtu {mtu} up"
        yield f"address add {port.address}/32 dev {port.name}"
        yield f"address add {port.address6}/128 dev {port.name} nodad"
        for gateway in (links.GATEWAY, links.GATEWAY6):
            mac = gateways[port.ifindex]
            yield f"neighbour add {gateway} lladdr {mac} dev {port.name} nud permanent"


def _routes(node: Node, version: int) -> Iterable[str]:
    """Lines for `ip -4 -batch` or `ip -6 -batch`: by the first rail, and what else rails need."""
    _, way = _way(node.ports[0], version)
    yield f"route add default {way}"
    if len(node.ports) > 1:
        for table, port in enumerate(node.ports, links.FIRST_TABLE):
            address, way = _way(port, version)
            prefix, bits = links.network(address)
            yield f"route add {prefix}/{bits} {way}"
            yield f"route add default {way} table {table}"
            yield f"rule add from {address} table {table}"


def _way(port: Port, version: int) -> tuple[Ip, str]:
    """A rail's address and the way behind it."""
    v4, v6 = (port.address, links.GATEWAY), (port.address6, links.GATEWAY6)
    text, gateway = v4 if version == 4 else v6
    return ip_address(text or ""), f"via {gateway} dev {port.name} onlink src {text}"


# --- QEMU ----------------------------------------------------------------------------------------


def _machine(accelerator: str, image: Image, arguments: str) -> list[str]:
    """What all machines have."""
    return [
        program(),
        *("-machine", "q35,hpet=off", "-accel", accelerator, "-cpu", "max"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-sandbox", _SANDBOX),
        *("-kernel", str(image.vmlinux), "-initrd", str(image.initramfs)),
        *("-append", f"{_KERNEL_ARGUMENTS}{arguments}"),
    ]


def probe_command(accelerator: str, image: Image) -> list[str]:
    """A machine that powers off, after a word on its standard output, if a kernel comes up."""
    return [*_machine(accelerator, image, " lab_probe=1"), "-m", "256M", "-serial", "stdio"]


def command(
    node: Node, machine: Guest, image: Image, accelerator: str, taps: Sequence[int], directory: Path
) -> list[str]:
    """The machine, with its console and its settings in the lab's `directory`."""
    words = [
        *_machine(accelerator, image, ""),
        *("-name", node.namespace, "-smp", str(machine.cpus)),
        *("-m", f"{machine.memory_bytes >> 20}M", "-device", "virtio-rng-pci"),
        *("-drive", f"file={image.disk},format=raw,if=none,id=root,readonly=on,file.locking=off"),
        *("-device", "virtio-blk-pci,drive=root"),
        *("-serial", f"file:{directory / guest.console_file(node.name)}"),
        *("-fw_cfg", f"name={CONFIG},file={directory / guest.config_file(node.name)}"),
        *("-device", f"virtio-serial-pci,max_ports={guest.CHANNELS + 1}"),
    ]
    for number in range(guest.CHANNELS):
        path = f"path={guest.channel(number)},abstract=on,server=on,wait=off"
        words += ["-chardev", f"socket,id=lab{number},{path}"]
        words += ["-device", f"virtserialport,chardev=lab{number},name=lab.{number}"]
    for rail, (port, tap) in enumerate(zip(node.ports, taps, strict=True)):
        words += ["-netdev", f"tap,id=rail{rail},fd={tap},sndbuf={_SEND_BYTES}"]
        words += ["-device", f"virtio-net-pci,netdev=rail{rail},mac={port.mac},romfile="]
    return words


# --- KVM, or not ---------------------------------------------------------------------------------
# Whether guests run on the processor (KVM) or are emulated (TCG) is tried, not concluded: /dev/kvm
# may be there and yet run no stock kernel, as where the machine itself is a guest of a hypervisor
# that only runs paravirtual ones. So a kernel is booted, once per boot of this machine.


def choose_accelerator(image: Image, say: Say) -> str:
    """KVM if a kernel of `image` comes up under it, else TCG. `say` gets the attempt."""
    if not os.access(_KVM_DEVICE, os.R_OK | os.W_OK):
        return TCG
    known = cache() / f"accelerator-{_situation()}"
    with contextlib.suppress(FileNotFoundError):
        return known.read_text("utf-8")
    say("does a kernel come up under KVM?")
    found = KVM if _comes_up(KVM, image) else TCG
    say("it does" if found == KVM else "it does not: kernel hosts are emulated")
    for old in cache().glob("accelerator-*"):
        old.unlink(missing_ok=True)
    known.write_text(found, "utf-8")
    return found


def _situation() -> str:
    status = _KVM_DEVICE.stat()
    facts = (boot_id(), program(), status.st_rdev)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _comes_up(accelerator: str, image: Image) -> bool:
    command = probe_command(accelerator, image)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT
    ) as machine:
        assert machine.stdout is not None  # noqa: S101 - it is a pipe
        try:
            return _WORD in _listen(machine.stdout)
        finally:
            machine.kill()


def _listen(output: IO[bytes]) -> bytes:
    """What is printed until it is clear, or time is up."""
    printed, deadline = b"", time.monotonic() + _PROBE_S
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while _WORD not in printed and _REFUSAL not in printed:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            data = os.read(output.fileno(), 4096)
            if not data:
                break
            printed += data
    return printed
