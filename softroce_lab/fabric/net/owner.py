# SPDX-License-Identifier: GPL-2.0-or-later
"""A port has one owner: the process that holds its name in the port's network namespace.

The name is an abstract UNIX address, which belongs to a network namespace (unix(7)), is given up
when the process ends, however it ends, and tells who holds it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from typing import Self

from softroce_lab.errors import RunError
from softroce_lab.fabric.net import programs

_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid
_ASK_S = 1.0


class PortOwner:
    """Holds `interface` of the calling thread's network namespace until it is closed.

    RunError that names the owner if another process holds it.
    """

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address = f"\0softroce_lab/port/{interface}"
        try:
            self._socket.bind(address)
            self._socket.listen(8)
        except OSError:
            self._socket.close()
            holder = _holder(address)
            shared = f"({programs.SERVICE})" in holder  # among programs of verbs
            first = "the programs of `lab exec --verbs` at this host" if shared else "that process"
            raise RunError(
                f"the port {interface} is in use by {holder}", hint=f"end {first} first"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()


def _holder(address: str) -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_ASK_S)
        client.connect(address)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid = _CREDENTIALS.unpack(credentials)[0]
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
            return f"process {pid} ({name})"
        return f"process {pid}"
    return "another process"
