# SPDX-License-Identifier: GPL-2.0-or-later
"""The XDP side of a lab: its programs on every port, and the handle on its pinned maps.

One compilation serves the whole lab. The maps and programs are pinned in the lab's own bpffs and
nowhere else, so unmounting that and deleting the namespaces removes every trace.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import ipaddress
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from softroce_lab.errors import LabError
from softroce_lab.fabric import lacks
from softroce_lab.fabric.bpf import layout, libbpf
from softroce_lab.fabric.bpf.compiler import Module
from softroce_lab.fabric.bpf.layout import LinkState, PortCounters, u32, u64
from softroce_lab.faults import layout as fault_layout
from softroce_lab.faults.layout import Hits, LinkRules
from softroce_lab.plan.effects import Fault
from softroce_lab.plan.plan import Node, Plan, Port, Route
from softroce_lab.topology import routing

Mode: TypeAlias = Literal["native", "generic"]
Enter: TypeAlias = Callable[[str], AbstractContextManager[object]]

SOURCE = "fabric.c"
PROGRAM_OF = {False: "switch_port", True: "host_port"}  # Node.is_host -> its ports' program
SHARE_PROGRAMS = "share_in", "share_out"  # at the process's end of a share, and at the other
MAPS = (
    "ports", "counters", "egress", "xsks", "shares", "share_xsks", "share_uplinks", "token",
    "probe_seen", "exact_routes", "prefix_routes", "links", "fault_sets", "fault_states", "names",
    "timeline", "flows", "flow_counts", "queues", "taps",
)  # fmt: skip
RECORDS = ("drops", "captures")  # for the monitor, which needs ring buffers

_PER_PACKET = {"spray": layout.SPRAY, "adaptive": layout.ADAPTIVE}

ATTACH_FLAGS = {"generic": 1 << 1, "native": 1 << 2}  # XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE
_CAPABILITY = {"generic": lacks.GENERIC_XDP, "native": lacks.NATIVE_XDP}

# Power-of-two sizes. At 30 % loss of 300,000 frames a second a drop log of 1 MiB holds 0.18 s. A
# capture ring of 8 MiB holds 0.16 s of that many packets' first 128 bytes, or 13 ms of whole frames
# of 2 KiB; the monitor comes by every 10 ms.
_DROP_LOG_BYTES = 1 << 20
_CAPTURE_BYTES = 1 << 23

_NAMES = 1 << 14  # packets that can be named at a time, those of the slot about to be used included
_FLOWS = 1 << 14  # connections that are numbered; the least recently used are forgotten


def first_shares(plan: Plan) -> dict[int, int]:
    """The first share of each host's port, by ifindex."""
    ports = [port.ifindex for host in plan.plain_hosts for port in host.ports]
    return {ifindex: layout.SHARES * number for number, ifindex in enumerate(ports)}


def port_configs(plan: Plan) -> Iterator[tuple[Port, bytes]]:
    shares = first_shares(plan)
    nodes = {node.name: node for node in plan.nodes}
    per_packet = _PER_PACKET.get(plan.load_balancing, 0)
    for tx_link, port, peer in plan.halves:
        node = nodes[port.node]
        # A host's frames are first seen at the far end, so that is where their fate is decided.
        fate = layout.FATE_AT_INGRESS if nodes[peer.node].is_host else 0
        yield (
            port,
            layout.port(
                salt=routing.salt(plan.seed, node.name),
                node=node.index,
                address=port.address or peer.address,
                rx_link=tx_link ^ 1,
                tx_link=tx_link,
                flags=fate | per_packet,
                first_share=shares.get(port.ifindex, len(shares) * layout.SHARES),  # or none
                mac=port.mac,
                peer_mac=peer.mac,
            ),
        )


def _parameters(*, records: bool) -> dict[str, int | str]:
    page = os.sysconf("SC_PAGE_SIZE")
    return {
        "LAB_NAMES": _NAMES,
        "LAB_FLOWS": _FLOWS,
        "LAB_RECORDS": int(records),
        "LAB_DROP_PAGES": _DROP_LOG_BYTES // page,
        "LAB_CAPTURE_PAGES": _CAPTURE_BYTES // page,
    }


def _entries(plan: Plan) -> dict[str, int]:
    """How large the maps are whose size depends on the lab."""
    ports = 1 + max(port.ifindex for node in plan.nodes for port in node.ports)
    links, routes = 2 * len(plan.links), max(1, len(plan.routes))
    of_hosts = max(1, len(first_shares(plan)))
    return {
        **dict.fromkeys(("shares", "share_xsks"), of_hosts * layout.SHARES),
        "share_uplinks": of_hosts,
        **dict.fromkeys(
            ("ports", "counters", "egress", "xsks", "probe_seen", "flow_counts"), ports
        ),
        **dict.fromkeys(("exact_routes", "prefix_routes"), routes),
        **dict.fromkeys(("links", "queues", "taps"), links),
        **dict.fromkeys(("fault_sets", "fault_states"), 2 * links),
    }


class XdpFabric:
    """The pinned maps of a lab that is up. OSError if the kernel rejects a call."""

    def __init__(self, bpffs: Path) -> None:
        self.mode: Mode | None = None  # known to whoever attached the programs
        self._bpffs = bpffs
        self._maps = {name: libbpf.Map.pinned(bpffs / name) for name in MAPS}

    @classmethod
    def open(cls, bpffs: Path) -> XdpFabric:
        """The handle of a lab that is up. LabError if nothing is pinned in `bpffs`."""
        try:
            return cls(bpffs)
        except FileNotFoundError as error:
            raise LabError(f"no XDP fabric is pinned in {bpffs}", hint="lab ps") from error

    @classmethod
    def attach(
        cls,
        plan: Plan,
        enter: Enter,
        bpffs: Path,
        token: int,
        mode: Mode | Literal["auto"],
        *,
        records: bool = True,
    ) -> XdpFabric:
        """Compile, load, pin and attach the programs of `plan`; its faults are not set yet.

        `enter(node)` is a context manager that moves the calling thread into the node's network
        namespace; `token` is the number below 2**64 that marks this lab's probes; with `records`
        there are ring buffers. EnvironmentLackError if the programs cannot be attached.
        """
        programs = (*PROGRAM_OF.values(), *SHARE_PROGRAMS)
        parameters = _parameters(records=records)
        with Module(SOURCE, programs, parameters, _entries(plan)) as module:
            module.pin(bpffs, (*MAPS, *RECORDS) if records else MAPS)
        fabric = cls(bpffs)
        try:
            fabric._maps["token"].put(u32(0), u64(token))
            for port, config in port_configs(plan):
                fabric._maps["ports"].put(u32(port.ifindex), config)
            fabric.set_routes(plan, plan.routes)
            shares = first_shares(plan)
            for node in plan.nodes:
                with enter(node.name):  # the kernel resolves an ifindex in the caller's namespace
                    for ifindex in (port.ifindex for port in node.ports):
                        fabric._maps["egress"].put(u32(ifindex), u32(ifindex))
                        if ifindex in shares:
                            number = shares[ifindex] // layout.SHARES
                            fabric._maps["share_uplinks"].put(u32(number), u32(ifindex))
            fabric._attach_first(plan.nodes, enter, ways(mode))
        except BaseException:
            fabric.close()
            raise
        return fabric

    def _attach_first(self, nodes: Sequence[Node], enter: Enter, modes: Sequence[Mode]) -> None:
        for mode in modes:
            try:
                return self.attach_programs(nodes, enter, mode)
            except OSError as error:
                if not lacks.refused_mode(error):
                    raise
                refusal = error
        raise lacks.no_mode(_CAPABILITY[mode] if len(modes) == 1 else "XDP on veth", refusal)

    def attach_programs(self, nodes: Iterable[Node], enter: Enter, mode: Mode) -> None:
        """Put the lab's programs on every port of `nodes`, in place of what runs there."""
        self.mode = mode
        for node in nodes:
            with enter(node.name):
                ifindexes = [port.ifindex for port in node.ports]
                attach_pinned(self._bpffs / PROGRAM_OF[node.is_host], ifindexes, mode)

    def close(self) -> None:
        """Close the descriptors; the lab stays up."""
        for table in self._maps.values():
            table.close()

    # --- Reading -----------------------------------------------------------------------------

    @functools.cached_property
    def _ifindexes(self) -> tuple[int, ...]:
        table = self._maps["ports"]
        blank = bytes(table.value_bytes)
        return tuple(i for i in range(table.max_entries) if table.get(u32(i)) != blank)

    def probe_seen(self) -> set[int]:
        """Ports whose probe crossed their link and came back, by ifindex."""
        seen = self._maps["probe_seen"]
        blank = bytes(seen.value_bytes)
        return {ifindex for ifindex in self._ifindexes if seen.get(u32(ifindex)) != blank}

    def counters(self) -> dict[int, PortCounters]:
        """Counts since `attach` of every port, by ifindex."""
        values = {ifindex: self._maps["counters"].get(u32(ifindex)) for ifindex in self._ifindexes}
        return {ifindex: PortCounters.unpack(value) for ifindex, value in values.items() if value}

    def missed(self) -> list[int]:
        """Packets of every directed link, in order, that found the ring of captures full."""
        table = self._maps["taps"]
        values = (table.get(u32(link)) for link in range(table.max_entries))
        return [layout.missed_of(value) for value in values if value]

    def link_states(self) -> list[LinkState]:
        return [self._link(directed) for directed in range(self._maps["links"].max_entries)]

    def hits(self) -> dict[int, list[Hits]]:
        """What the rules of each directed link did since they were set."""
        found: dict[int, list[Hits]] = {}
        slots = {2 * link + state.slot: link for link, state in enumerate(self.link_states())}
        for slot, link in slots.items():
            value = self._maps["fault_sets"].get(u32(slot))
            state = self._maps["fault_states"].get(u32(slot))
            if value and state and any(value):
                found[link] = fault_layout.rule_hits(state, fault_layout.rule_ids(value))
        for key in self._maps["names"].all_keys():
            link = slots.get(fault_layout.slot_of_name(key), -1)
            value = self._maps["names"].get(key)
            if link >= 0 and value:
                found.setdefault(link, []).append(fault_layout.named_hits(value))
        return found

    @property
    def timeline(self) -> Any:
        """What all links share: a record of struct lab_timeline."""
        value = self._maps["timeline"].get(u32(0))
        if value is None:
            raise ValueError("the map `timeline` is empty")
        return layout.TIMELINE.unpack(value)

    # --- Live changes ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One change at a time, whatever process makes it."""
        fd = os.open(self._bpffs, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _link(self, directed: int) -> LinkState:
        value = self._maps["links"].get(u32(directed))
        if value is None:
            raise ValueError(f"no directed link {directed}")
        return LinkState.unpack(value)

    def set_faults(self, faults: Sequence[Fault]) -> None:
        """Make `faults` the lab's only ones, while packets flow; no packet sees half a rule.

        Those of one directed link apply in the given order. A link whose faults stay the same
        is not changed. A link with new ones counts its packets from 0 again. The wire stage must
        have the shapes of shaped links already.
        """
        wanted: dict[int, list[Fault]] = collections.defaultdict(list)
        for fault in faults:
            wanted[fault.directed_link].append(fault)
        with self._changing():
            rules = {
                link: fault_layout.link_rules(wanted.get(link, ()))
                for link in range(self._maps["links"].max_entries)
            }
            changed = {link: new for link, new in rules.items() if self._differs(link, new)}
            if not changed:
                return
            self._learn(any(new.learns for new in rules.values()))
            self._forget_names(changed)
            for link, new in changed.items():
                self._write_idle(link, new)
            for link, new in changed.items():
                value = self._link(link).flipped(has_rules=not new.empty, shaped=new.shaped)
                self._maps["links"].put(u32(link), value)
            libbpf.wait_for_programs()  # before any write to the slots that are now idle
            self._forget_names(changed)

    def _differs(self, link: int, new: LinkRules) -> bool:
        state = self._link(link)
        present = self._maps["fault_sets"].get(u32(2 * link + state.slot))
        return present != new.value or state.shaped != new.shaped

    def _write_idle(self, link: int, new: LinkRules) -> None:
        slot = self._idle_slot(link)
        self._maps["fault_sets"].put(u32(slot), new.value)
        self._maps["fault_states"].put(u32(slot), bytes(self._maps["fault_states"].value_bytes))
        for name, value in new.names.items():
            self._maps["names"].put(fault_layout.name_key(slot, name), value)

    def _idle_slot(self, link: int) -> int:
        return 2 * link + (self._link(link).slot ^ 1)

    def _forget_names(self, links: Iterable[int]) -> None:
        names, slots = self._maps["names"], set(map(self._idle_slot, links))
        for key in names.all_keys():
            if fault_layout.slot_of_name(key) in slots:
                names.delete(key)

    def _learn(self, wanted: bool) -> None:
        """Let switches number connections, from now on, or no more."""
        if bool(self.timeline.learn) != wanted:
            self._begin_round(learn=wanted)

    def _begin_round(self, **changes: int) -> None:
        for ifindex in range(self._maps["flow_counts"].max_entries):
            self._maps["flow_counts"].put(u32(ifindex), u64(0))
        now = self.timeline
        following = now._replace(round=(now.round + 1) % 2**32, **changes)
        self._maps["timeline"].put(u32(0), layout.TIMELINE.pack(**following._asdict()))

    def clear_faults(self) -> None:
        self.set_faults(())

    def restart(self, epoch_ns: int) -> None:
        """Let all faults begin again, as for a new run: streams, counts, numbers, the timeline.

        `epoch_ns` (CLOCK_MONOTONIC) is the new moment 0 of the timeline.
        """
        with self._changing():
            blank = bytes(self._maps["fault_states"].value_bytes)
            for slot in range(self._maps["fault_states"].max_entries):
                self._maps["fault_states"].put(u32(slot), blank)
            names = self._maps["names"]
            for key in names.all_keys():
                if value := names.get(key):
                    names.put(key, fault_layout.fresh_named(value))
            self._begin_round(epoch_ns=epoch_ns % 2**64)  # it may lie before the machine's boot

    def offer_share(self, share: int, ifindex: int) -> None:
        """Lead what is for a share of a port to this interface of the caller's namespace."""
        self._maps["shares"].put(u32(share), u32(ifindex))

    def withdraw_share(self, share: int) -> None:
        self._maps["shares"].delete(u32(share))

    def lead_to_socket(self, table: Literal["xsks", "share_xsks"], key: int, socket: int) -> None:
        """Lead the frames of a port, or of a share, to an AF_XDP socket until that is closed."""
        self._maps[table].put(u32(key), u32(socket))

    def set_routes(self, plan: Plan, routes: Iterable[Route]) -> None:
        """Put these routes in place of those for the same node and destination."""
        nodes = {node.name: node.index for node in plan.nodes}
        for route in routes:
            node, prefix = nodes[route.node], ipaddress.IPv4Network(route.destination)
            value = layout.group([port.ifindex for port in route.ports])
            if prefix.prefixlen == 32:
                self._maps["exact_routes"].put(layout.exact_key(node, prefix), value)
            else:
                self._maps["prefix_routes"].put(layout.prefix_key(node, prefix), value)


def attach_pinned(program: Path, ifindexes: Iterable[int], mode: Mode) -> None:
    """Let the program pinned at `program` run on interfaces of the caller's network namespace."""
    fd = libbpf.opened(program)
    try:
        for ifindex in ifindexes:
            libbpf.attach_xdp(ifindex, fd, ATTACH_FLAGS[mode])
    finally:
        os.close(fd)


def ways(mode: Mode | Literal["auto"]) -> tuple[Mode, ...]:
    """In which modes to attach, by preference. `auto` stands for generic, or else native.

    Measured on two cores of a Linux 6.18 machine, leaf-spine path of three switches, AF_XDP ends,
    2112-byte frames, interleaved pairs: generic carries 1.33 times the frames of native XDP one
    way (367,000 a second to 310,000) and 1.21 times both ways together; kernel UDP gains as much.
    A veth turns each packet that enters native XDP from a socket into a page of its own, while
    generic XDP works on the packet as it is.
    """
    return ("generic", "native") if mode == "auto" else (mode,)
