# SPDX-License-Identifier: GPL-2.0-or-later
"""Becoming a program inside a node's network namespace."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import NoReturn

from softroce_lab.errors import UserError
from softroce_lab.fabric import syscalls, view
from softroce_lab.fabric.rights import needing_root


def execute(lab: str | None, node: str, argv: Sequence[str]) -> NoReturn:
    """Replace this process by `argv` inside `node` of the lab called `lab`, or of the only one.

    Nothing but the network namespace changes; in particular /sys stays, and with it any bpffs.
    UserError for an unknown lab, node or program.
    """
    if not argv[0]:
        raise UserError("the command is an empty word", hint="lab exec NODE -- COMMAND")
    with needing_root():
        fd = view.namespace(view.up(lab), node)
        syscalls.setns(fd, syscalls.CLONE_NEWNET)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606
    except OSError as error:
        raise UserError(f"cannot run {argv[0]}: {error.strerror}") from error
