# SPDX-License-Identifier: GPL-2.0-or-later
"""A new kind of guests is one registration: here processes that stand for machines."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab.errors import RunError, UserError
from softroce_lab.fabric import guests, lab, runtime
from softroce_lab.fabric.ledger import process
from softroce_lab.fabric.net import netns
from softroce_lab.fabric.observe import describe, view
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.plan import plan as plans


@dataclasses.dataclass
class Sleeper:
    """A guest: a process that sleeps, and whose commands run in its namespace."""

    node: str
    process_of: object
    namespace: object
    directory: Path

    @property
    def console(self):
        return self.directory / f"{self.node}.console"

    @property
    def machine(self):
        return self.process_of()

    def check_alive(self):
        if not self.machine.is_alive():
            raise RunError(f"{self.node} is dead")

    def run(self, argv, timeout_s):
        self.check_alive()
        with netns.entered(self.namespace()):
            return subprocess.run(argv, timeout=timeout_s, capture_output=True, check=False)


class Sleepers:
    """All that the fabric asks of a kind."""

    def prepare(self, plan, say):
        say("preparing")
        return "an hour"

    def described(self, node, means):
        return f"sleeps for {means}"

    def files(self, node):
        return (f"{node}.console",)

    def start(self, ledger, plan, node, namespace, means):
        with (ledger.directory / f"{node.name}.console").open("wb") as console:
            argv, role = ["/bin/sleep", "3600"], guests.role(node.name)
            process.spawn(ledger, argv, role=role, netns_fd=namespace, stdout=console)

    def reach(self, node, machine, namespace, directory):
        return Sleeper(node, machine, namespace, directory)

    def await_ready(self, guests, check):
        for guest in guests:
            guest.check_alive()

    def document(self, node):
        return {"bed": node.index}

    def line(self, document):
        return f"{document['node']} in bed {document['bed']}"

    def cause_of_death(self, directory, node):
        return ": a nightmare"


KIND = Sleepers()


@pytest.fixture
def plan(two_hosts, monkeypatch):
    """Two hosts, the second of the new kind."""
    monkeypatch.setitem(sys.modules, "sleepers", sys.modules[__name__])
    monkeypatch.setitem(plans.GUESTS, "sleeper", "sleepers")
    nodes = tuple(
        dataclasses.replace(node, kind="sleeper") if node.name == "h2" else node
        for node in two_hosts.nodes
    )
    return dataclasses.replace(two_hosts, nodes=nodes)


def test_a_new_kind_of_guests_is_one_registration(plan, traces):
    steps = []
    with lab.owned(plan, say=steps.append) as up:
        assert {"preparing", "h2: sleeps for an hour", "waiting for h2"} <= set(steps)
        first = up.guest("h2").machine
        assert b"eth1" in up.guest("h2").run(["ip", "link"], 10).stdout
        with pytest.raises(UserError, match="h1 is not a kernel host"):
            up.guest("h1")
        with view.of_lab(plan.name).guest("h2") as seen:
            assert seen.machine == first
        up.boot("h2")
        second = up.guest("h2").machine
        assert (first.is_alive(), second.is_alive()) == (False, True)
        assert second.end(5.0)
        (condition,) = [each for each in runtime.labs() if each.name == plan.name]
        (host,) = describe.kernel_hosts(plan, condition)
        assert (host["node"], host["bed"], host["alive"]) == ("h2", plan.node("h2").index, False)
        assert describe.kernel_host_line("sleeper", host).startswith("h2 in bed ")
        (damage,) = describe.lab_document(condition)["damage"]
        assert damage["what"] == "the kernel host h2 is dead: a nightmare"
    assert traces.gone(), traces.found()


def test_labs_of_plain_hosts_import_no_kind_of_guests():
    script = (
        "import sys, softroce_lab.cli.app as cli\n"
        "try: cli.app(['up', 'two-hosts', '--dry-run'])\n"
        "except SystemExit: pass\n"
        "from softroce_lab.fabric.observe import view, describe, stats\n"
        "print([name for name in sys.modules if 'kernel_host' in name])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT_ROOT, capture_output=True, text=True
    )
    assert result.stdout.splitlines()[-1] == "[]", result.stderr
