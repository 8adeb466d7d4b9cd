# SPDX-License-Identifier: GPL-2.0-or-later
"""The shares of a host's ports: one for each process that opens a port, and what its link does.

A process asks over a UNIX socket (native/endpoint/port_wire.hpp) and has its share as long as it
keeps the socket, so one that is killed leaves nothing behind. The first process has the port
itself; any other gets a veth pair in the host's network namespace, with its own AF_XDP socket at
one end (xdp/lab_maps.h). So no process handles the frames of another, and one alone is as fast as
if there were no shares.

The process of `beside.py` turns this, in the host's network namespace. It opens what needs root
and hands it to programs of any user. Whom it serves is thus decided by who enters the namespace,
which takes root: an abstract UNIX address is not reached from elsewhere (unix(7)). With what it
hands out a program can disturb its lab, and nothing else: it may send any frame at its host, and
write the backlogs of links (the kernel maps no map that is to be read only).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softroce_lab import _native
from softroce_lab.errors import RunError
from softroce_lab.fabric import faults
from softroce_lab.fabric.bpf import layout, libbpf
from softroce_lab.fabric.bpf.xdp import (
    SHARE_PROGRAMS,
    Mode,
    XdpFabric,
    attach_pinned,
    first_shares,
)
from softroce_lab.fabric.ledger import planfile
from softroce_lab.fabric.net import links, rtnetlink
from softroce_lab.fabric.net.owner import PortOwner
from softroce_lab.fabric.observe.view import View
from softroce_lab.plan import locate
from softroce_lab.plan.plan import Node, Plan, Port
from softroce_lab.structs import Struct
from softroce_lab.telemetry import counters_file

LOOK_NS = 40_000_000
"""How often links are looked at. A program hears of a link that went down within 100 ms."""

_REQUEST, _GRANT, _STATE = Struct("ports::Request"), Struct("ports::Grant"), Struct("ports::State")
_IFF_RUNNING = 0x40
_NAMESPACE = Path("/proc/self/ns/net")


class PortShares:
    """The shares of one port."""

    def __init__(
        self, port: Port, plan: Plan, first: int, directory: Path, bpffs: Path, mode: Mode
    ) -> None:
        self.port, self._uplink = port, locate.uplink(plan, port)
        self._published = directory / counters_file.DIRECTORY
        self.up = True  # when somebody looked last
        self.clients: dict[int, socket.socket] = {}  # by their shares
        self._first, self._mtu, self._bpffs, self._mode = first, plan.mtu, bpffs, mode
        self._owner: PortOwner | None = None

    def grant(self, client: socket.socket, xdp: XdpFabric) -> tuple[dict[str, Any], list[int]]:
        """The lowest free share, as struct Grant, and new descriptors in the order of enum Given.

        RunError if another process has the port alone, OSError if the kernel refuses.
        """
        share = next((n for n in range(layout.SHARES) if self._is_free(n)), None)
        if share is None:
            raise RunError(f"{layout.SHARES} processes have the port {self.port.name}")
        if not self.clients:
            self._owner = PortOwner(self.port.name)
        self.clients[share] = client
        try:
            interface = self._make_pair(share, xdp) if share else self.port.name
            descriptors = self._open(share, xdp)
        except OSError:
            self.release(share, xdp)
            raise
        granted = {"share": share, "uplink": self._uplink, "up": self.up}
        return granted | {"interface": interface.encode()}, descriptors

    def _open(self, share: int, xdp: XdpFabric) -> list[int]:
        opened: list[int] = []
        try:
            opened += _native.open_port()
            opened.append(libbpf.opened(self._bpffs / "queues"))
            opened.append(_native.make_statistics_file(str(self._counters(share))))
            if share:
                xdp.lead_to_socket("share_xsks", self._first + share, opened[0])
            else:
                xdp.lead_to_socket("xsks", self.port.ifindex, opened[0])
        except OSError:
            _close_all(opened)
            raise
        return opened

    def release(self, share: int, xdp: XdpFabric) -> None:
        """The process has closed its socket, or has ended."""
        del self.clients[share]
        self._counters(share).unlink(missing_ok=True)
        if share:
            xdp.withdraw_share(self._first + share)
            self._delete_pair(share)
        if not self.clients and self._owner:
            self._owner.close()
            self._owner = None

    def tell(self, up: bool) -> None:
        """Tell the processes, if the link came up or went down."""
        if up == self.up:
            return
        self.up = up
        for client in self.clients.values():
            with contextlib.suppress(OSError):
                client.send(_STATE.pack(up=up))

    def _is_free(self, share: int) -> bool:
        """Nobody has it, nor got it of a service that was killed and has it still."""
        return share not in self.clients and not counters_file.is_held(self._counters(share))

    def _counters(self, share: int) -> Path:
        return self._published / (f"{self.port}@{share}" if share else str(self.port))

    def _indexes(self, share: int) -> tuple[int, int]:
        """Of the process's end and of the other."""
        first = layout.FIRST_SHARE_IFINDEX + 2 * (self._first + share)
        return first, first + 1

    def _names(self, share: int) -> tuple[str, str]:
        name = self.port.name[:12]  # of 15 characters that the kernel takes
        return f"{name}p{share}", f"{name}f{share}"

    def _make_pair(self, share: int, xdp: XdpFabric) -> str:
        indexes, names = self._indexes(share), self._names(share)
        self._delete_pair(share)  # of a service that was killed
        namespace = os.open(_NAMESPACE, os.O_RDONLY)
        try:
            ends = [
                rtnetlink.veth_end(index, name, self.port.mac, self._mtu, namespace)
                for index, name in zip(indexes, names, strict=True)
            ]
            rtnetlink.request([rtnetlink.veth(*ends)])
        finally:
            os.close(namespace)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for name in names:
                links.raise_flags(control, name, links.IFF_UP | links.IFF_NOARP)
        for index, program in zip(indexes, SHARE_PROGRAMS, strict=True):
            attach_pinned(self._bpffs / program, [index], self._mode)
        xdp.offer_share(self._first + share, indexes[1])
        return names[0]

    def _delete_pair(self, share: int) -> None:
        links.delete(zip(self._indexes(share), self._names(share), strict=True))


@dataclasses.dataclass(slots=True)
class Client:
    """A process, and what it has."""

    socket: socket.socket
    port: PortShares | None = None
    share: int = 0


class PortServer:
    """Serves the processes of one host."""

    def __init__(self, directory: Path, bpffs: Path, node: Node, mode: Mode) -> None:
        self._directory = directory
        self._xdp = XdpFabric.open(bpffs)
        self._inode = -1  # of the plan's file
        plan = self._plan()
        shares = first_shares(plan)
        self._ports = {
            port.name: PortShares(port, plan, shares[port.ifindex], directory, bpffs, mode)
            for port in node.ports
        }
        self._links = {port.name: locate.uplink(plan, port) // 2 for port in node.ports}
        self._clients: dict[int, Client] = {}  # by descriptor
        self._look_ns = 0  # when to look at the links next

    @classmethod
    def of(cls, seen: View, node: str) -> PortServer:
        """The service of a host of a lab that is up."""
        assert seen.condition is not None  # noqa: S101 - a lab that is up has one
        mode = seen.condition.history.state_facts["xdp"]
        return cls(seen.directory, seen.bpffs, seen.plan.node(node), mode)

    def close(self) -> None:
        """Close what is left of its sockets."""
        for client in list(self._clients.values()):
            self._leave(client)

    def is_needed(self, deserted_s: float) -> bool:
        """Whether somebody has a share, however long ago the last program ended."""
        return bool(self._clients)

    @property
    def awaited(self) -> dict[int, int]:
        """What `select.poll` is to tell of, by descriptor."""
        return dict.fromkeys(self._clients, select.POLLIN)

    @property
    def wait_ms(self) -> int | None:
        """How long nothing needs to be done; None: for ever."""
        if not any(port.clients for port in self._ports.values()):
            return None
        return max(0, (self._look_ns - time.monotonic_ns()) // 1_000_000 + 1)

    def admit(self, connected: socket.socket) -> None:
        """A program has come."""
        connected.setblocking(False)
        self._clients[connected.fileno()] = Client(connected)

    def handle(self, fd: int, _events: int) -> None:
        """Something came from a program, or it has ended."""
        if client := self._clients.get(fd):
            try:
                message = client.socket.recv(_REQUEST.size)
                if client.port or len(message) != _REQUEST.size:
                    raise ConnectionError("it has ended, or makes no sense")
                granted, descriptors = self._answer(client, _REQUEST.unpack(message))
                try:
                    socket.send_fds(client.socket, [_GRANT.pack(**granted)], descriptors)
                finally:
                    _close_all(descriptors)
            except BlockingIOError:
                pass
            except OSError:
                self._leave(client)

    def _leave(self, client: Client) -> None:
        del self._clients[client.socket.fileno()]
        client.socket.close()
        if client.port:
            client.port.release(client.share, self._xdp)

    def _answer(self, client: Client, request: Any) -> tuple[dict[str, Any], list[int]]:
        """Members of struct Grant, and descriptors."""
        name = request.interface.rstrip(b"\0").decode("ascii", "replace")
        try:
            if name not in self._ports:
                raise OSError(errno.ENODEV, f"the host has no port {name}")
            port = self._ports[name]
            self._look_at([port], time.monotonic_ns())
            if not request.share:
                return {"up": port.up}, []
            granted, descriptors = port.grant(client.socket, self._xdp)
        except RunError as error:
            return _refusal(errno.EBUSY, str(error)), []
        except OSError as error:
            return _refusal(error.errno or errno.EIO, str(error)), []
        client.port, client.share = port, granted["share"]
        return granted, descriptors

    def keep_time(self) -> None:
        """Look at the links of ports that somebody has, if it is time."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            self._look_at([port for port in self._ports.values() if port.clients], now_ns)

    def _look_at(self, ports: Sequence[PortShares], now_ns: int) -> None:
        plan = self._plan()
        down = faults.down_links(plan, max(now_ns - self._xdp.timeline.epoch_ns, 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for port in ports:
                runs = links.flags_of(control, port.port.name) & _IFF_RUNNING
                port.tell(bool(runs) and self._links[port.port.name] not in down)

    def _plan(self) -> Plan:
        """The lab's plan, with its faults of now."""
        with contextlib.suppress(FileNotFoundError):  # the lab goes down
            inode = (self._directory / planfile.FILE).stat().st_ino
            if inode != self._inode:
                self._current, self._inode = planfile.read(self._directory), inode
        return self._current


def _close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def _refusal(error: int, problem: str) -> dict[str, Any]:
    most = len(_GRANT.unpack(bytes(_GRANT.size)).problem) - 1
    return {"error": error, "problem": problem.encode()[:most]}
