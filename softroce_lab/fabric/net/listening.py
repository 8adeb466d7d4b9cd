# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether something listens at a TCP port of the calling thread's network namespace."""

from __future__ import annotations

from pathlib import Path

_LISTENING = "0A"  # a state in /proc/net/tcp (Documentation/networking/proc_net_tcp.rst)
_TABLES = ("tcp", "tcp6")


def listens(port: int) -> bool:
    """At any address of either IP version."""
    lines: list[list[str]] = []
    for table in _TABLES:
        text = Path(f"/proc/thread-self/net/{table}").read_text("ascii")
        lines += [line.split() for line in text.splitlines()[1:]]
    return any(
        words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port for words in lines
    )
