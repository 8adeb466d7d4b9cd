# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's RNICs as unmodified programs find them, one for each of its ports.

Settings for native/verbs, and files in /sys.
Names and contents of the files are those of Linux
(Documentation/ABI/stable/sysfs-class-infiniband).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from softroce_lab.fabric.observe import counters_files
from softroce_lab.fabric.observe.view import View
from softroce_lab.plan import locate
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.plan.plan import Node, Port

SETTINGS = "softroce_lab"  # beside the files of /sys/class/infiniband_verbs/uverbs0


def name(rail: int) -> str:
    return f"softroce{rail}"


def character_device(rail: int) -> str:
    return f"uverbs{rail}"


def gids(port: Port) -> list[ipaddress.IPv6Address]:
    """GID 0 is the port's IPv4 address (IBA annex A17.4.5), GID 1 its IPv6 address."""
    mapped = ipaddress.IPv6Address(f"::ffff:{port.address}")
    return [mapped, ipaddress.IPv6Address(str(port.address6))]


def guid(mac: str) -> int:
    """The EUI-64 of a MAC address (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return int.from_bytes(bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:], "big")


def path_mtu(netdev_mtu_bytes: int) -> int:
    """What fits into frames of both IP versions, bytes."""
    return min(path_mtu_bytes(netdev_mtu_bytes, version) for version in (4, 6))


def settings(seen: View, node: Node, rail: int) -> str:
    """The library's settings of the RNIC at one of the host's ports: a name and a value a line."""
    port = node.ports[rail]
    _, next_hop = locate.peers(seen.plan)[port.ifindex]
    pairs: list[tuple[str, object]] = [
        ("device", name(rail)),
        ("guid", f"{guid(port.mac):#x}"),
        ("interface", port.name),
        ("ifindex", port.ifindex),
        ("mac", f"0x{port.mac.replace(':', '')}"),
        ("next_hop_mac", f"0x{next_hop.mac.replace(':', '')}"),
        *(("gid", str(gid)) for gid in gids(port)),
        ("path_mtu", path_mtu(seen.plan.mtu)),
        ("statistics", counters_files.path_for(seen.directory, port)),
    ]
    return "".join(f"{key} {value}\n" for key, value in pairs)


def class_files(seen: View, node: Node) -> Mapping[str, str]:
    """Files below /sys/class that the devices have there, and their contents."""
    files = {"infiniband_verbs/abi_version": "6\n"}
    for rail, port in enumerate(node.ports):
        verbs = f"infiniband_verbs/{character_device(rail)}"
        files |= {path: f"{text}\n" for path, text in _files(seen, node, rail, port, verbs).items()}
        files[f"{verbs}/{SETTINGS}"] = settings(seen, node, rail)
    return files


def _files(seen: View, node: Node, rail: int, port: Port, verbs: str) -> dict[str, str]:
    words = f"{guid(port.mac):016x}"
    shown = ":".join(words[at : at + 4] for at in range(0, 16, 4))
    device = f"infiniband/{name(rail)}"
    files = {
        f"{device}/node_type": "1: CA",
        f"{device}/node_guid": shown,
        f"{device}/sys_image_guid": shown,
        f"{device}/node_desc": f"{node.name} of {seen.plan.name}",
        f"{device}/fw_ver": "softroce_lab",
        f"{device}/ports/1/state": "4: ACTIVE",
        f"{device}/ports/1/phys_state": "5: LinkUp",
        f"{device}/ports/1/rate": "2.5 Gb/sec (1X SDR)",
        f"{device}/ports/1/link_layer": "Ethernet",
        f"{device}/ports/1/lid": "0x0",
        f"{device}/ports/1/lid_mask_count": "0",
        f"{device}/ports/1/sm_lid": "0x0",
        f"{device}/ports/1/sm_sl": "0",
        f"{device}/ports/1/cap_mask": "0x04010000",
        f"{device}/ports/1/pkeys/0": "0xffff",
        f"{verbs}/abi_version": "1",
        f"{verbs}/ibdev": name(rail),
        f"{verbs}/dev": f"231:{192 + rail}",
    }
    for index, gid in enumerate(gids(port)):
        files[f"{device}/ports/1/gids/{index}"] = gid.exploded
        files[f"{device}/ports/1/gid_attrs/types/{index}"] = "RoCE v2"
        files[f"{device}/ports/1/gid_attrs/ndevs/{index}"] = port.name
    return files
