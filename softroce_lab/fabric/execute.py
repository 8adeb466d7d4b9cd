# SPDX-License-Identifier: GPL-2.0-or-later
"""Becoming a program inside a node's network namespace."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import NoReturn

from softroce_lab.errors import LabError, UserError
from softroce_lab.fabric import netns, removal, runtime, syscalls
from softroce_lab.fabric.rights import needing_root
from softroce_lab.fabric.runtime import Condition


def execute(lab: str | None, node: str, argv: Sequence[str]) -> NoReturn:
    """Replace this process by `argv` inside `node` of the lab called `lab`, or of the only one.

    Nothing but the network namespace changes; in particular /sys stays, and with it any bpffs.
    UserError for an unknown lab, node or program.
    """
    if not argv[0]:
        raise UserError("the command is an empty word", hint="lab exec NODE -- COMMAND")
    with needing_root():
        fd = _namespace(_chosen(lab), node)
        syscalls.setns(fd, syscalls.CLONE_NEWNET)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606
    except OSError as error:
        raise UserError(f"cannot run {argv[0]}: {error.strerror}") from error


def _chosen(lab: str | None) -> Condition:
    found = [condition for condition in runtime.labs() if condition.word == "up"]
    if lab is not None:
        runtime.existing(lab)
        found = [condition for condition in found if condition.name == lab]
    if not found:
        raise UserError(f"the lab {lab} is not up" if lab else "no lab is up", hint="lab up FILE")
    if len(found) > 1:
        names = ", ".join(condition.name for condition in found)
        raise UserError(f"several labs are up: {names}", hint="say which one: --lab NAME")
    return found[0]


def _namespace(condition: Condition, node: str) -> int:
    entries = {entry.facts["node"]: entry for entry in condition.history.of_kind("netns")}
    if node not in entries:
        hint = f"there are: {', '.join(entries)}"
        raise UserError(f"the lab {condition.name} has no node {node}", hint=hint)
    name = entries[node].facts["name"]
    fd = netns.opened(name, removal.identity_of(entries[node]))
    if fd is None:
        raise LabError(f"the namespace {name} is gone", hint=f"lab down {condition.name}")
    return fd
