# SPDX-License-Identifier: GPL-2.0-or-later
"""Becoming a program inside a node's network namespace, where the lab's hosts have names."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from softroce_lab.errors import LabError, ProgramError, UserError
from softroce_lab.fabric.net import host, syscalls
from softroce_lab.fabric.observe import view
from softroce_lab.fabric.observe.view import View
from softroce_lab.fabric.rights import needing_root
from softroce_lab.paths import verbs_library
from softroce_lab.plan.plan import Plan
from softroce_lab.programs.device import beside, device, mounts

if TYPE_CHECKING:
    from softroce_lab.programs.device.ports import PortServer

HOSTS = Path("/etc/hosts")
SHIFT = "SOFTROCE_SHIFT"
"""Environment variable: 1: RC queue pairs have backups on the host's next RNIC (SHIFT)."""
TRANSPORT = "SOFTROCE_TRANSPORT"
"""Environment variable: the engine's configuration for another transport than RC, in one line
(experiment/hosts/program_transport.py makes it, native/verbs/settings.cpp reads it)."""
RECORDS = "SOFTROCE_RECORDS"
"""Environment variable: a folder for what RNICs leave, `KIND/NODE` of each kind and node."""
RECORD_KINDS = {"counters": "SOFTROCE_COUNTERS", "losses": "SOFTROCE_LOSSES"}
"""By kind, the variable of the library (native/verbs/settings.cpp)."""
_SCRATCH = "/run"


def execute(
    seen: View,
    node: str,
    argv: Sequence[str],
    *,
    with_rnic: bool = False,
    preload: bool = False,
) -> NoReturn:
    """Replace this process by `argv` inside `node` of a lab that is up.

    Its namespaces, /etc/hosts and /dev/shm are the node's. Processes, files and /sys stay, and
    with it any bpffs. `with_rnic`: the host's RNICs are there as well, the process that serves
    their ports and connections, and the libraries by which programs reach all that. `preload` loads
    these libraries before a program's own.
    UserError for an unknown node, LabError if it has lost its namespaces, ProgramError.
    """
    if not argv[0]:
        raise UserError("the command is an empty word", hint="lab exec NODE -- COMMAND")
    with needing_root():
        assert seen.condition is not None  # noqa: S101 - a lab that is up has one
        with view.namespace_of(seen.condition, node) as fd:
            syscalls.setns(fd, syscalls.CLONE_NEWNET)
        _enter_host(seen, node)
    with contextlib.suppress(OSError):  # names are a convenience; addresses work without
        _name_hosts(seen.plan)
    if with_rnic:
        _show_rnics(seen, node, preload=preload)
        _name_records(node)
        beside.start(lambda: _port_server(seen, node))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606
    except OSError as error:
        raise ProgramError(argv[0], error) from error


def _enter_host(seen: View, node: str) -> None:
    folder = seen.directory / host.DIRECTORY / node
    try:
        host.enter(folder)
    except FileNotFoundError as error:
        what = f"the hostname and shared memory of {node} are gone: {folder}"
        raise LabError(what, hint=f"lab down {seen.plan.name}, and up again") from error
    mounts.separate(HOSTS, host.SHM)
    host.mount_shm(folder)


def _show_rnics(seen: View, node: str, *, preload: bool) -> None:
    """UserError where no soft RNIC can live, EnvironmentLackError without the library."""
    if not has_rnic(seen.plan, node):
        raise UserError(
            f"{node} has no soft RNIC", hint="--verbs is for the hosts of a lab that are no guests"
        )
    if os.environ.get(SHIFT) == "1" and len(seen.plan.node(node).ports) < 2:
        raise UserError(
            f"{node} has one RNIC, and --shift needs another for backups",
            hint="lab up dual-rail, or give the host two links in the topology",
        )
    library = verbs_library()
    with needing_root():
        host_ = seen.plan.node(node)
        mounts.show(device.class_files(seen, host_), len(host_.ports), library.parent)
    _put_first("LD_LIBRARY_PATH", str(library.parent))
    if preload:
        _put_first("LD_PRELOAD", *(str(library.with_name(name)) for name in mounts.LIBRARIES))


def _name_records(node: str) -> None:
    """A launcher hands the environment of one node to the next: each gets its own folders."""
    for kind, variable in RECORD_KINDS.items():
        folder = Path(os.environ.get(RECORDS, ""), kind, node)
        if RECORDS in os.environ and folder.is_dir():
            os.environ[variable] = str(folder)


def _port_server(seen: View, node: str) -> PortServer:
    from softroce_lab.programs.device.ports import PortServer

    return PortServer.of(seen, node)


def has_rnic(plan: Plan, node: str) -> bool:
    return node in {each.name for each in plan.plain_hosts}


def _put_first(variable: str, *words: str) -> None:
    """Once: a launcher hands its environment to the next one."""
    before = os.environ.get(variable, "").split(":")
    others = [word for word in before if word and word not in words]
    os.environ[variable] = ":".join([*words, *others])


def hosts_text(plan: Plan, before: str) -> str:
    """What stood in /etc/hosts, and the addresses of the lab's hosts, once.

    The first rail of h1 is `h1`; every rail is `h1.eth1` too.
    """
    title = f"# the lab {plan.name}"
    if title in before.splitlines():
        return before
    lines = [before.rstrip("\n"), title]
    for each in plan.hosts:
        for rail, port in enumerate(each.ports):
            names = ("" if rail else f"{each.name} ") + f"{each.name}.{port.name}"
            lines += [f"{address} {names}" for address in (port.address, port.address6) if address]
    return "\n".join(lines) + "\n"


def _name_hosts(plan: Plan) -> None:
    """Mount a file over /etc/hosts, for this process and its children only."""
    text = hosts_text(plan, HOSTS.read_text("utf-8") if HOSTS.exists() else "")
    with tempfile.NamedTemporaryFile(dir=_SCRATCH, prefix="softroce_lab-hosts-") as file:
        file.write(text.encode())
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        # What is mounted stays when the name goes; without a name it cannot be mounted.
        syscalls.mount(file.name, str(HOSTS), None, syscalls.MS_BIND)
