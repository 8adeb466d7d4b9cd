# SPDX-License-Identifier: GPL-2.0-or-later
"""Capabilities that a lab can do without, at a price; found out by trying, in microseconds.

`lab doctor` (doctor.py) tries all that a lab may need, and more thoroughly.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
from collections.abc import Callable

from softroce_lab.errors import EnvironmentLackError
from softroce_lab.fabric.bpf import libbpf
from softroce_lab.fabric.net import syscalls

AF_XDP = "AF_XDP sockets"
RING_BUFFERS = "BPF ring buffers"
NATIVE_XDP = "native XDP on veth"
GENERIC_XDP = "generic XDP"

# What a lab is without it.
PRICES = {
    AF_XDP: "no RDMA hosts, and no delays, rates, duplicates or reordering; all else works",
    RING_BUFFERS: "injected drops are counted but not recorded, and nothing is captured",
}

_HINT = "`lab doctor` says what needs it and how to get it"


def _ring_buffer() -> None:
    with libbpf.probe_ring_buffer():
        pass


def _af_xdp() -> None:
    socket.socket(syscalls.AF_XDP, socket.SOCK_RAW).close()


_ATTEMPTS: dict[str, Callable[[], None]] = {AF_XDP: _af_xdp, RING_BUFFERS: _ring_buffer}


def found() -> tuple[str, ...]:
    """What this machine lacks of what a lab can do without.

    EnvironmentLackError if it takes no XDP programs at all: without them there is no lab.
    """
    try:
        with libbpf.probe_program():
            pass
    except OSError as error:
        if os.geteuid() != 0:
            raise  # missing rights: the caller reports it
        raise _lack("XDP programs", f"bpf(2): {error.strerror}") from error
    return tuple(name for name, attempt in _ATTEMPTS.items() if _refusal(attempt) is not None)


def need(capability: str) -> None:
    """EnvironmentLackError if this machine lacks it."""
    refusal = _refusal(_ATTEMPTS[capability])
    if isinstance(refusal, PermissionError) and os.geteuid() != 0:
        raise EnvironmentLackError("the rights of root", hint="run it as root, or with sudo")
    if refusal is not None:
        raise _lack(capability, refusal.strerror or str(refusal)) from refusal


def need_compiler() -> None:
    """EnvironmentLackError if the switches' programs cannot be compiled: bcc is not there."""
    if importlib.util.find_spec("bcc") is None:
        raise EnvironmentLackError("bcc for the system's Python", hint="apt install python3-bpfcc")


def refused_mode(error: OSError) -> bool:
    """Whether attaching a program failed for its mode, which the device or kernel has not."""
    return error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ERANGE, errno.ENOSYS)


def no_mode(capability: str, error: OSError) -> EnvironmentLackError:
    """The error of programs that could not be attached in any requested mode."""
    return _lack(capability, error.strerror or str(error))


def _refusal(attempt: Callable[[], None]) -> OSError | None:
    try:
        attempt()
    except OSError as error:
        return error
    return None


def _lack(capability: str, why: str) -> EnvironmentLackError:
    return EnvironmentLackError(capability, f"this machine lacks {capability}: {why}", hint=_HINT)
