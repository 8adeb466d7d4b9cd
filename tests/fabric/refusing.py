# SPDX-License-Identifier: GPL-2.0-or-later
"""A kernel that lacks something: a process tree whose system calls are refused where we say so.

By seccomp_unotify(2), so that the refusal is the system call's own and the arguments behind its
pointers can be looked at. x86-64.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from softroce_lab.fabric.bpf import libbpf
from softroce_lab.fabric.net import syscalls
from softroce_lab.paths import PROJECT_ROOT

BPF, SOCKET, SENDTO, SECCOMP = 321, 41, 44, 317
_NUMBERS = (BPF, SOCKET, SENDTO)

# linux/seccomp.h
_SET_MODE_FILTER, _NEW_LISTENER, _CONTINUE = 1, 8, 1
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
_NOTICE, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")

_MAP_CREATE = 0  # bpf(2)
_RTM_SETLINK, _IFLA_XDP, _IFLA_XDP_FLAGS, _ATTRIBUTES = 19, 43, 3, 32  # rtnetlink(7)
_NESTED = 0x8000
_GENERIC, _NATIVE = 2, 4  # XDP_FLAGS_*

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Call:
    """A system call that waits for its answer."""

    number: int
    arguments: tuple[int, ...]
    pid: int

    def memory(self, address: int, size: int) -> bytes:
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, address)


Refusal = Callable[[Call], int]  # the errno; 0: the kernel may have it


def no_bpf(call):
    return errno.EPERM if call.number == BPF else 0


def no_af_xdp(call):
    asked = call.number == SOCKET and call.arguments[0] == syscalls.AF_XDP
    return errno.EAFNOSUPPORT if asked else 0


def no_ring_buffers(call):
    if call.number != BPF or call.arguments[0] != _MAP_CREATE:
        return 0
    (kind,) = struct.unpack("=I", call.memory(call.arguments[1], 4))
    return errno.EINVAL if kind == libbpf.MAP_TYPE_RINGBUF else 0


def no_xdp(*modes):
    """Refuses to attach XDP programs in these modes."""
    refused = sum({"generic": _GENERIC, "native": _NATIVE}[mode] for mode in modes)

    def refusal(call):
        if call.number != SENDTO:
            return 0
        flags = _xdp_flags(call.memory(call.arguments[1], min(call.arguments[2], 4096)))
        return errno.EOPNOTSUPP if flags & refused else 0

    return refusal


def _xdp_flags(message):
    """The flags with which a netlink message attaches an XDP program; 0 if it does not."""
    if len(message) < _ATTRIBUTES or message[4:6] != struct.pack("=H", _RTM_SETLINK):
        return 0
    xdp = dict(_attributes(message[_ATTRIBUTES:])).get(_IFLA_XDP, b"")
    flags = dict(_attributes(xdp)).get(_IFLA_XDP_FLAGS, bytes(4))
    return struct.unpack("=I", flags)[0]


def _attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & ~_NESTED, data[4:length]
        data = data[max(4, length + 3 & ~3) :]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _listener():
    """Let all further calls of these numbers wait for whoever holds the descriptor returned."""
    code = [struct.pack("=HBBI", 0x20, 0, 0, 0)]  # load the number
    for left, number in enumerate(reversed(_NUMBERS)):
        code.insert(1, struct.pack("=HBBI", 0x15, left + 1, 0, number))  # equal: jump to "ask"
    code += [struct.pack("=HBBI", 0x06, 0, 0, answer) for answer in (_ALLOW, _ASK)]
    program = _Program(len(code), b"".join(code))
    fd = libc.syscall(SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return fd


def _answer(listener, refusal):
    """Until the last process of the tree is gone."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        ((_, events),) = poll.poll()
        if not events & select.POLLIN:
            return
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
            number, pid, _, call, _, _, *arguments = _NOTICE.unpack(notice)
            code = refusal(Call(call, tuple(arguments), pid))
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, -code, 0 if code else _CONTINUE))
        except FileNotFoundError:  # it was killed meanwhile
            continue


def run_lab(refusal, *arguments):
    """Run the command line on a kernel with this refusal."""
    if platform.machine() != "x86_64":
        pytest.skip("knows the system calls of x86-64 only")
    ours, theirs = socket.socketpair()

    def install():
        socket.send_fds(theirs, [b"."], [_listener()])

    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "softroce_lab.cli", *arguments],
            cwd=PROJECT_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=install,
        )
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    answering = threading.Thread(target=_answer, args=(listener, refusal), daemon=True)
    answering.start()
    stdout, stderr = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)
