# SPDX-License-Identifier: GPL-2.0-or-later
"""softroce-wire: the lab's native process that holds frames for queues, rates and delays.

XDP hands it the frames of shaped links by the AF_XDP sockets of the ports they arrive on, and it
sends them out of the port that they were meant for (docs/howto/fabric.md). What it is to do it is
configured over `wire.sock`, which also returns the counts of frames.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softroce_lab import units
from softroce_lab.errors import RunError, UserError
from softroce_lab.fabric.daemons.wire_layout import LinkFigures, PortFigures, StageFigures
from softroce_lab.fabric.ledger import ledger, process
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.net import netns
from softroce_lab.faults import layout
from softroce_lab.paths import native_program
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.structs import Struct, enumerators

PROGRAM = "softroce-wire"
ROLE = "wire"  # in the ledger
SOCKET = "wire.sock"
LOG = "wire.log"  # its standard error
FILES = (LOG, SOCKET)  # in the lab's directory, to be announced in the ledger

FRAME_BYTES = 4096
TIMEOUT_S = 20.0  # to begin with it pins its memory: 12 s on a busy emulated machine

_LEAST_FRAMES = 1 << 14  # that lie ready at all ports together
_FEWEST_FRAMES = 1 << 11  # of the pool, on the smallest machine
_MOST_PORT_FRAMES = 2048  # that lie ready at each port: 5 ms at 400,000 frames a second
_LEAST_PORT_FRAMES = 256
_SEND_FRAMES = 256  # of each port on their way out (kSendFrames of native/wire/stage.cpp)
_SPARE_PART = 16  # of the free memory, for what only changes may need
_MOST_SPARE_FRAMES = 1 << 17  # 512 MiB
_ANSWER_MOST_BYTES = 1 << 16

# native/wire/protocol.hpp
_OPERATIONS = enumerators("wire::Operation")
_STATUS = {value: name for name, value in enumerators("wire::Status").items()}
_REQUEST = Struct("wire::Request")
_PORT_LINKS = Struct("wire::PortLinks")
_ANSWER = Struct("wire::Answer")
_NO_ROOM = Struct("wire::NoRoom")
_PAUSE = Struct("Pause")

_RETRY_S = 0.005
_LISTEN_S = 0.2  # a stage without a record that made its socket listens by then, or is dead


def argv(bpffs: Path, directory: Path, frames: int, port_frames: int) -> list[str]:
    """The command that serves the fabric whose maps are pinned in `bpffs`; SIGTERM ends it.

    `frames` and `port_frames` are those of `pool`. EnvironmentLackError if it was never built.
    """
    program = str(native_program(PROGRAM))
    return [program, str(bpffs), str(directory), str(frames), str(port_frames)]


def frames_needed(shaped: Mapping[int, Sequence[Fault]]) -> int:
    """Frames that the shapes of these directed links may hold together."""
    if not shaped:
        return 0
    from softroce_lab import _native  # labs without shapes come up sooner

    return sum(_native.frames_needed(layout.shape(faults)) for faults in shaped.values())


def pool(ports: int, frames: int = 0, *, spare_ports: int = 0) -> tuple[int, int]:
    """(frames of the pool, frames in the fill ring of each port).

    `frames` is the number for the shapes of a plan; the fill rings of its `ports` come on top;
    the rest is room for changes: a sixteenth of the free memory, 512 MiB at most, shared with the
    `spare_ports` that may need sockets later. None of it is taken before a link is shaped. The
    kernel adds some 110 bytes a frame for each port. UserError if the plan needs more memory than
    a machine should give.
    """
    ready = _LEAST_FRAMES // max(1, ports + spare_ports)
    ready = min(_MOST_PORT_FRAMES, max(_LEAST_PORT_FRAMES, ready))
    needed = frames + ports * (ready + _SEND_FRAMES)
    available = available_bytes()
    if needed * FRAME_BYTES > available // 2:
        need, have = (units.format_bytes(size) for size in (needed * FRAME_BYTES, available))
        raise UserError(
            f"queues and delays of this lab may hold {need}; {have} of memory are free",
            hint="shorter delays, lower rates, smaller limits, or fewer shaped links",
        )
    spare = min(available // _SPARE_PART // FRAME_BYTES, _MOST_SPARE_FRAMES)
    return needed + max(spare, _FEWEST_FRAMES), ready


def available_bytes() -> int:
    """Memory that can be had without swapping: MemAvailable of proc_meminfo(5)."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def ports_for(plan: Plan, shaped: Collection[int]) -> list[Port]:
    """The ports that need the stage's sockets so that the directed links `shaped` can be shaped.

    That is every port of a switch from which such a link leaves, or at which one from a host
    ends: frames may arrive at any of them, and leave by any.
    """
    switches = {node.name for node in plan.nodes if node.kind == "switch"}
    served = set()
    for directed, sender, receiver in plan.halves:
        if directed in shaped:
            served.add(sender.node if sender.node in switches else receiver.node)
    return [port for node in plan.nodes if node.name in served & switches for port in node.ports]


class PortLinks(NamedTuple):
    """The directed links of a switch's port."""

    rx_link: int  # ends there
    tx_link: int  # begins there
    to_host: bool  # where `tx_link` leads


def links_of(plan: Plan) -> dict[int, PortLinks]:
    """By ifindex."""
    hosts = {node.name for node in plan.hosts}
    return {
        sender.ifindex: PortLinks(directed ^ 1, directed, receiver.node in hosts)
        for directed, sender, receiver in plan.halves
    }


class WireStage:
    """The running stage of one lab, as its other processes see it.

    Every method raises RunError if it is dead, with its last output, or does not respond in
    time.
    """

    def __init__(self, directory: Path, timeout_s: float = TIMEOUT_S) -> None:
        """Connect; a stage that was only just started is waited for."""
        self._directory = directory
        self._timeout_s = timeout_s
        self._socket = self._connect(time.monotonic() + timeout_s)

    def __enter__(self) -> WireStage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def open_port(self, port: Port, links: PortLinks, netns_fd: int) -> bool:
        """Take frames at a port, and send there; nothing happens if that is so already.

        False if the interface is gone: it was deleted, or its peer.
        `links`: of `links_of`. `netns_fd`: a descriptor of the port's network namespace.
        """
        body = _PORT_LINKS.pack(**links._asdict())
        try:
            self._request("open_port", port.ifindex, body, [netns_fd])
        except RunError:
            if _exists(port, netns_fd):
                raise
            return False
        return True

    def shape(self, directed: int, faults: Sequence[Fault]) -> None:
        """Let the queues, delays and reorderings among a directed link's faults shape it from now.

        Frames that it holds keep their times. Without any it passes frames on at once. UserError
        if its queue and its delay may hold more frames than there are.
        """
        self._request("shape", directed, layout.shape(faults))

    def set_epoch(self, moment_ns: int) -> None:
        """Let the timeline of the shapes' windows begin at a moment of CLOCK_MONOTONIC."""
        self._request("epoch", 0, moment_ns.to_bytes(8, sys.byteorder))

    def link(self, directed: int) -> LinkFigures:
        return LinkFigures.unpack(self._request("link_figures", directed))

    def base(self, directed: int) -> LinkFigures:
        """The same as it was when the link's shape was last set."""
        return LinkFigures.unpack(self._request("link_base", directed))

    def port(self, ifindex: int) -> PortFigures:
        """What a port took and sent. RunError if it was never opened."""
        return PortFigures.unpack(self._request("port_figures", ifindex))

    def ports(self, plan: Plan) -> dict[int, PortFigures]:
        """Of every port of a switch that was opened, by ifindex."""
        found = {}
        if self.figures().ports:
            switches = (node for node in plan.nodes if node.kind == "switch")
            for port in (port for node in switches for port in node.ports):
                with contextlib.suppress(RunError):
                    found[port.ifindex] = self.port(port.ifindex)
        return found

    def figures(self) -> StageFigures:
        return StageFigures.unpack(self._request("stage_figures"))

    def pauses(self) -> list[tuple[int, int]]:
        """When it did not run, begin and end by CLOCK_MONOTONIC; seen while one is connected."""
        return [tuple(each) for each in _PAUSE.unpack_all(self._request("pauses"))]

    # --- Requests ----------------------------------------------------------------------------

    def _connect(self, deadline: float) -> socket.socket:
        problem: OSError | str = "it does not answer"
        listens_by = time.monotonic() + _LISTEN_S
        recorded: Sequence[ProcessIdentity] | None = None
        while (left_s := deadline - time.monotonic()) > 0:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                client.settimeout(left_s)
                client.connect(str(self._directory / SOCKET))
            except (FileNotFoundError, ConnectionRefusedError, TimeoutError) as error:
                client.close()
                problem = error
                recorded = _recorded(self._directory) if recorded is None else recorded
                refused = isinstance(error, ConnectionRefusedError)
                if refused and not recorded and time.monotonic() > listens_by:
                    break
                if _ended(recorded):
                    break
                time.sleep(min(_RETRY_S, left_s))
            else:
                client.settimeout(self._timeout_s)
                return client
        raise self._dead(problem)

    def _request(
        self, operation: str, number: int = 0, body: bytes = b"", fds: Sequence[int] = ()
    ) -> bytes:
        """The answer's payload. RunError also if the answer is none of the protocol's."""
        message = _REQUEST.pack(operation=_OPERATIONS[operation], number=number, body=body)
        try:
            socket.send_fds(self._socket, [message], fds)
            packet = self._socket.recv(_ANSWER_MOST_BYTES)
        except OSError as error:
            raise self._dead(error) from error
        status, payload = self._parsed(packet)
        if status == "no_room":
            raise _no_room(_NO_ROOM.unpack(payload))
        if status == "failed":
            raise RunError(f"the wire stage refused: {payload.decode('utf-8', 'replace')}")
        return payload

    def _parsed(self, packet: bytes) -> tuple[str, bytes]:
        head = _ANSWER.unpack(packet) if len(packet) >= _ANSWER.size else None
        if head is None or len(packet) != _ANSWER.size + head.bytes or head.status not in _STATUS:
            raise self._dead(f"an answer of {len(packet)} bytes")
        return _STATUS[head.status], packet[_ANSWER.size :]

    def _dead(self, problem: OSError | str) -> RunError:
        log = self._directory / LOG
        ended = _ended(_recorded(self._directory))
        state = "died" if ended else f"does not answer: {problem}"
        return RunError(
            f"the lab's wire stage {state}{process.last_words(log)}",
            hint=f"frames of shaped links are lost without it; its log is {log}; start the lab "
            "again",
        )


def _exists(port: Port, netns_fd: int) -> bool:
    with netns.entered(netns_fd):
        try:
            socket.if_indextoname(port.ifindex)
        except OSError:
            return False
    return True


def _recorded(directory: Path) -> Sequence[ProcessIdentity]:
    """The stage's processes in the lab's ledger; none if the stage was started without one."""
    try:
        entries = ledger.read(directory).of_kind("process")
    except FileNotFoundError:
        return ()
    known = (process.recorded(entry) for entry in entries if entry.facts["role"] == ROLE)
    return [identity for identity in known if identity is not None]


def _ended(recorded: Sequence[ProcessIdentity]) -> bool:
    return bool(recorded) and not any(known.is_alive() for known in recorded)


def _no_room(refusal: Any) -> UserError:
    needed, total, mib = refusal.needed_frames, refusal.all_frames, FRAME_BYTES / 2**20
    return UserError(
        f"queue and delay of this link may hold {needed} frames, {needed * mib:.0f} MiB; the wire "
        f"stage has {refusal.available_frames} left of {total}, {total * mib:.0f} MiB",
        hint="a shorter delay, a lower rate, or a smaller limit; a lab that comes up with it "
        "(lab up FILE --faults PROFILE) gets what it needs",
    )
