# SPDX-License-Identifier: GPL-2.0-or-later
"""Which system calls a submission may make: to compute, to read files, and nothing else.

A filter of seccomp(2), in classic BPF. It holds for this process until it ends. A call that is not
in the list fails with EPERM: no socket, no new process, no file that is written or removed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

_X86_64 = {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
    "rt_sigreturn": 15, "ioctl": 16, "pread64": 17, "access": 21, "sched_yield": 24,
    "mremap": 25, "madvise": 28, "getpid": 39, "exit": 60, "uname": 63, "fcntl": 72,
    "getcwd": 79, "readlink": 89, "gettimeofday": 96, "sysinfo": 99, "getuid": 102,
    "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131, "gettid": 186,
    "time": 201, "futex": 202, "sched_getaffinity": 204, "getdents64": 217,
    "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230,
    "exit_group": 231, "newfstatat": 262, "set_robust_list": 273, "getrandom": 318,
    "membarrier": 324, "statx": 332, "rseq": 334,
    "tgkill": 234, "openat": 257, "clone": 56, "clone3": 435,
}  # fmt: skip
_AARCH64 = {
    "getcwd": 17, "fcntl": 25, "ioctl": 29, "faccessat": 48, "close": 57, "getdents64": 61,
    "lseek": 62, "read": 63, "write": 64, "pread64": 67, "ppoll": 73, "readlinkat": 78,
    "newfstatat": 79, "fstat": 80, "exit": 93, "exit_group": 94, "futex": 98,
    "set_robust_list": 99, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
    "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132,
    "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "uname": 160,
    "gettimeofday": 169, "getpid": 172, "getuid": 174, "geteuid": 175, "getgid": 176,
    "getegid": 177, "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216,
    "mmap": 222, "mprotect": 226, "madvise": 233, "getrandom": 278, "membarrier": 283,
    "statx": 291, "rseq": 293,
    "tgkill": 131, "openat": 56, "clone": 220, "clone3": 435,
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
_CONDITIONAL = ("tgkill", "openat", "clone", "clone3", "ioctl", "fcntl")

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF_LD|W|ABS, JEQ|K, JSET|K, RET|K
_NR, _ARCH = 0, 4  # offsets in struct seccomp_data
_ARGUMENT_0, _ARGUMENT_1, _ARGUMENT_2 = 16, 24, 32
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x00010000
# Whether it is a terminal, of which size; not TIOCSTI, which types into it.
_IOCTLS = (0x5401, 0x5413, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONCLEX, FIOCLEX
# Copies and flags of descriptors; not F_SETOWN and F_SETSIG, which have signals sent to others.
_FCNTLS = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | 0o20000000  # __O_TMPFILE
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_DUMPABLE = 38, 22, 2, 4
_CAPABILITY_VERSION_3 = 0x20080522


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def available() -> bool:
    """Whether this machine's system calls are known here."""
    return platform.machine() in _ARCHITECTURES


def install() -> bool:
    """Restrict this process, and its threads to come. False: it could not be done."""
    if not available():
        return False
    code = _program(*_ARCHITECTURES[platform.machine()], os.getpid())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def drop_capabilities() -> None:
    """Of root nothing is left but the files that are root's."""
    libc = ctypes.CDLL(None)
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    libc.capset(header, bytes(24))  # effective, permitted, inheritable, each of 64 bits


def shut_out() -> None:
    """Let no process of the same user read this one's memory and environment in /proc."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _program(architecture: int, calls: dict[str, int], pid: int) -> bytes:
    allow, fail = _step(_RETURN, _ALLOW), _step(_RETURN, _FAIL | _EPERM)
    steps = [_step(_LOAD, _ARCH), _step(_EQUAL, architecture, 1, 0), fail, _step(_LOAD, _NR)]
    for name, number in calls.items():
        if name not in _CONDITIONAL:
            steps += [_step(_EQUAL, number, 0, 1), allow]
    # glibc falls back to clone(2), whose flags can be seen here.
    steps += [_step(_EQUAL, calls["clone3"], 0, 1), _step(_RETURN, _FAIL | _ENOSYS)]
    steps += [_step(_EQUAL, calls["clone"], 0, 4), _step(_LOAD, _ARGUMENT_0)]
    steps += [_step(_ANY_BIT, _CLONE_THREAD, 0, 1), allow, fail]
    steps += [_step(_EQUAL, calls["openat"], 0, 4), _step(_LOAD, _ARGUMENT_2)]
    steps += [_step(_ANY_BIT, _WRITES, 0, 1), fail, allow]
    steps += _one_of(calls["ioctl"], _IOCTLS) + _one_of(calls["fcntl"], _FCNTLS)
    steps += [_step(_EQUAL, calls["tgkill"], 0, 4), _step(_LOAD, _ARGUMENT_0)]
    steps += [_step(_EQUAL, pid, 0, 1), allow, fail]
    return b"".join([*steps, fail])


def _one_of(call: int, allowed: Sequence[int]) -> list[bytes]:
    """Of a call, whose second argument has to be one of these."""
    tests = [_step(_EQUAL, each, len(allowed) - place) for place, each in enumerate(allowed)]
    body = [_step(_LOAD, _ARGUMENT_1), *tests]
    end = [_step(_RETURN, _FAIL | _EPERM), _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, call, 0, len(body) + len(end)), *body, *end]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
