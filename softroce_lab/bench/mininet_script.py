# SPDX-License-Identifier: GPL-2.0-or-later
"""Mininet's side of `lab bench up`: nodes and links as JSON in, the seconds they took out.

Run as a script by the system's Python, with the standard library and Mininet alone. Its switches
are Open vSwitch's where that runs, else the kernel's bridges, each with the spanning tree on; they
have no controller. Unlike `lab up`, Mininet proves no link, and its `stop` does not wait
until the kernel has removed everything. What importing it takes is not counted.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from typing import Any


def _switches() -> tuple[Any, dict[str, Any], str] | None:
    """A class of Mininet's that works here, what to tell it, and its name."""
    from mininet.node import OVSBridge
    from mininet.nodelib import LinuxBridge

    ask = ["ovs-vsctl", "--timeout=2", "show"]
    if shutil.which(ask[0]) and subprocess.run(ask, capture_output=True).returncode == 0:
        return OVSBridge, {"stp": True}, "Open vSwitch"
    if shutil.which("brctl"):
        return LinuxBridge, {"stp": True}, "Linux bridges"
    return None


def measure(graph: dict[str, Any]) -> dict[str, Any]:
    """Bring the graph up and down."""
    try:
        from mininet.net import Mininet
    except ImportError as error:
        return {"missing": f"Mininet ({error})"}
    switches = _switches()
    if switches is None:
        return {"missing": "neither Open vSwitch nor brctl, for Mininet's switches"}
    kind, settings, name = switches
    begun = time.perf_counter()
    net = Mininet(switch=kind, controller=None, build=False)
    try:
        nodes = {host: net.addHost(host) for host in graph["host"]}
        for number, switch in enumerate(graph["switch"], 1):
            nodes[switch] = net.addSwitch(switch, dpid=f"{number:x}", **settings)
        for near, far in graph["links"]:
            net.addLink(nodes[near], nodes[far])
        net.start()
        up_s = time.perf_counter() - begun
    finally:
        begun = time.perf_counter()
        net.stop()
    return {"up_s": up_s, "down_s": time.perf_counter() - begun, "switches": name}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    json.dump(measure(json.load(sys.stdin)), sys.stdout)
