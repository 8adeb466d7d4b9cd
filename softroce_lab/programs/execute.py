# SPDX-License-Identifier: GPL-2.0-or-later
"""Becoming a program inside a node's network namespace, where the lab's hosts have names."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from softroce_lab.errors import ProgramError, UserError
from softroce_lab.fabric.net import syscalls
from softroce_lab.fabric.observe import view
from softroce_lab.fabric.observe.view import View
from softroce_lab.fabric.rights import needing_root
from softroce_lab.paths import verbs_library
from softroce_lab.plan.plan import Plan
from softroce_lab.programs.device import beside, device, mounts

HOSTS = Path("/etc/hosts")
_SCRATCH = "/run"
_LIBRARIES = "LD_LIBRARY_PATH"


def execute(seen: View, node: str, argv: Sequence[str], *, with_rnic: bool = False) -> NoReturn:
    """Replace this process by `argv` inside `node` of a lab that is up.

    Nothing but the network namespace and /etc/hosts changes; in particular /sys stays, and with
    it any bpffs. `with_rnic`: the host's RNIC is there as well, a connection manager, and the
    libraries by which programs reach both. UserError for an unknown node, ProgramError.
    """
    if not argv[0]:
        raise UserError("the command is an empty word", hint="lab exec NODE -- COMMAND")
    with needing_root():
        assert seen.condition is not None  # noqa: S101 - a lab that is up has one
        with view.namespace_of(seen.condition, node) as fd:
            syscalls.setns(fd, syscalls.CLONE_NEWNET)
    with contextlib.suppress(OSError):  # names are a convenience; addresses work without
        _name_hosts(seen.plan)
    if with_rnic:
        _show_rnic(seen, node)
        os.environ[beside.SOCKET_VARIABLE] = beside.start()
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606
    except OSError as error:
        raise ProgramError(argv[0], error) from error


def _show_rnic(seen: View, node: str) -> None:
    """UserError where no soft RNIC can live, EnvironmentLackError without the library."""
    host = next((each for each in seen.plan.plain_hosts if each.name == node), None)
    if host is None:
        raise UserError(
            f"{node} has no soft RNIC", hint="--verbs is for the hosts of a lab that are no guests"
        )
    library = verbs_library()
    with needing_root():
        mounts.show(device.class_files(seen, host))
    before = os.environ.get(_LIBRARIES)
    os.environ[_LIBRARIES] = f"{library.parent}:{before}" if before else str(library.parent)


def hosts_text(plan: Plan, before: str) -> str:
    """What stood in /etc/hosts, and the addresses of the lab's hosts.

    The first rail of h1 is `h1`; every rail is `h1.eth1` too.
    """
    lines = [before.rstrip("\n"), f"# the lab {plan.name}"]
    for host in plan.hosts:
        for rail, port in enumerate(host.ports):
            names = ("" if rail else f"{host.name} ") + f"{host.name}.{port.name}"
            lines += [f"{address} {names}" for address in (port.address, port.address6) if address]
    return "\n".join(lines) + "\n"


def _name_hosts(plan: Plan) -> None:
    """Mount a file over /etc/hosts for this process and its children only.

    Only the mount that holds /etc/hosts is made private: what is mounted elsewhere meanwhile, such
    as the bpffs of another lab, still shows in both mount namespaces.
    """
    text = hosts_text(plan, HOSTS.read_text("utf-8") if HOSTS.exists() else "")
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", mounts.mount_point(HOSTS.resolve()), None, syscalls.MS_PRIVATE)
    with tempfile.NamedTemporaryFile(dir=_SCRATCH, prefix="softroce_lab-hosts-") as file:
        file.write(text.encode())
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        # What is mounted stays when the name goes; without a name it cannot be mounted.
        syscalls.mount(file.name, str(HOSTS), None, syscalls.MS_BIND)
