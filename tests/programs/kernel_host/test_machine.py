# SPDX-License-Identifier: GPL-2.0-or-later
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from softroce_lab import topology
from softroce_lab.errors import EnvironmentLackError
from softroce_lab.fabric.net import links
from softroce_lab.programs.kernel_host import machine as guest_machine
from softroce_lab.programs.kernel_host.image import Image

TWO_RAILS = """
name: rails
topology:
  nodes:
    h1: {kind: host}
    k1: {kind: kernel, kernel: "6.1", memory: 512MiB, cpus: 2}
    s1: {kind: switch}
    s2: {kind: switch}
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["h1:eth2", "s2:p1"]
    - endpoints: ["k1:eth0", "s1:p2"]
    - endpoints: ["k1:eth1", "s2:p2"]
"""
IMAGE = Image(Path("/i/vmlinux"), Path("/i/boot.cpio"), Path("/i/root.ext4"), "6.1.0-1-amd64")


@pytest.fixture
def plan(tmp_path):
    file = tmp_path / "rails.yaml"
    file.write_text(TWO_RAILS)
    return topology.load(str(file))


def test_a_guest_is_told_its_name_its_hosts_and_its_rails(plan):
    reported = json.loads(guest_machine.config(plan, plan.node("k1"), "10.0.0.1 h1\n"))
    assert reported["name"] == "k1"
    assert reported["hosts"] == "10.0.0.1 h1\n"
    assert reported["rails"] == ["eth0", "eth1"]


def test_rails_get_names_addresses_and_permanent_gateways(plan):
    node = plan.node("k1")
    reported = json.loads(guest_machine.config(plan, node, ""))
    lines = reported["network"].splitlines()
    # Names change hands: the second interface of the guest is called what the first one was not.
    assert lines.index("link set dev eth1 name rail1") < lines.index("link set dev rail0 name eth0")
    for port, gateway in ((port, links.gateways(plan)[port.ifindex]) for port in node.ports):
        assert f"address add {port.address}/32 dev {port.name}" in lines
        assert f"address add {port.address6}/128 dev {port.name} nodad" in lines
        permanent = f"lladdr {gateway} dev {port.name} nud permanent"
        assert f"neighbour add 169.254.0.1 {permanent}" in lines
        assert f"neighbour add fe80::1 {permanent}" in lines
    lines = reported["routes"]["4"].splitlines()
    assert "route add default via 169.254.0.1 dev eth0 onlink src 10.0.0.2" in lines
    assert "route add 10.1.0.0/16 via 169.254.0.1 dev eth1 onlink src 10.1.0.2" in lines
    assert "rule add from 10.1.0.2 table 101" in lines
    assert "rule add from fd53:6c61:6200::a01:2 table 101" in reported["routes"]["6"].splitlines()


def test_the_machine_is_the_plans(plan, monkeypatch):
    monkeypatch.setattr(guest_machine, "program", lambda: "qemu")
    node = plan.node("k1")
    words = guest_machine.command(node, node.guest, IMAGE, "kvm", [7, 8], Path("/run/x"))
    line = " ".join(words)
    assert "-accel kvm" in line
    assert "-smp 2" in line
    assert "-m 512M" in line
    for fd, port in zip((7, 8), node.ports, strict=True):
        assert f"fd={fd}" in line
        assert f"mac={port.mac}" in line
    assert "readonly=on" in line


@pytest.mark.skipif(not shutil.which(guest_machine.PROGRAM), reason="there is no QEMU")
def test_the_machine_starts_no_programs_and_gains_no_rights():
    """QEMU knows the sandbox's words, and has the kernel hold it to them: seccomp(2)'s filter."""
    words = guest_machine.probe_command("tcg", IMAGE)
    sandbox = words[words.index("-sandbox") + 1]
    assert {"spawn=deny", "elevateprivileges=deny"} <= set(sandbox.split(","))
    command = [guest_machine.program(), "-sandbox", sandbox, "-machine", "none"]
    command += ["-nodefaults", "-display", "none", "-S", "-qmp", "stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as machine:
        try:
            assert b"QMP" in machine.stdout.readline()  # it is up
            status = Path(f"/proc/{machine.pid}/status").read_text()
        finally:
            machine.kill()
    assert "Seccomp:\t2" in status


def test_a_host_without_qemu_is_told_the_package(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnvironmentLackError, match="apt install qemu-system-x86"):
        guest_machine.program()
