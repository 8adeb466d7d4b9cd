# SPDX-License-Identifier: GPL-2.0-or-later
"""A process beside the unmodified programs of a host: their connection manager.

The first `lab exec --verbs` starts it. It ends when nothing runs at the host any more: launchers
leave daemons behind whose children are the programs. Before, it tells the peers of programs that
have ended, as the kernel would: it may run for some seconds longer.
It listens at an abstract UNIX address of the host's network namespace. All hosts have the same
address.
The manager itself is imported and made when a program asks for it first: most never do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from softroce_lab.fabric.net import netns
from softroce_lab.structs import CONSTANTS

if TYPE_CHECKING:
    from softroce_lab.programs.rdmacm.server import Server

ADDRESS: str = CONSTANTS["cm::kAddress"]
COMMAND = "softroce-cm"  # the process's name in ps(1)
_BACKLOG = 128


def start() -> None:
    """Start it beside this process, which is about to become a program, unless it runs already.

    It is nobody's child, so that the program meets no child that it did not start.
    """
    listening = _listening()
    if listening is None:
        return
    child = os.fork()
    if child == 0:
        _leave(listening)
    os.waitpid(child, 0)
    listening.close()


def _listening() -> socket.socket | None:
    """A socket at the address; None if another process has it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening.bind(f"\0{ADDRESS}")
    except OSError as error:
        listening.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    listening.listen(_BACKLOG)
    return listening


def _leave(listening: socket.socket | None) -> NoReturn:
    try:
        os.setsid()
        if os.fork() == 0:
            assert listening is not None  # noqa: S101 - `start` has bound it
            _become_quiet(keep=listening.fileno())
            while listening is not None:
                with listening:
                    serve(listening, lambda: next(_others(), None), _server)
                # A program may have come just before the address was given up.
                listening = None if next(_others(), None) is None else _listening()
    finally:
        os._exit(0)


def _others() -> Iterator[int]:
    """Descriptors of the other processes of this network namespace."""
    own = Path("/proc/self/ns/net").stat().st_ino
    for pid in netns.inhabitants([own])[own]:
        if pid != os.getpid():
            with contextlib.suppress(OSError):  # it has ended
                yield os.pidfd_open(pid)


def _become_quiet(keep: int) -> None:
    """Hold nothing that belongs to the program: who reads its output waits for the end of it."""
    Path("/proc/self/comm").write_text(COMMAND, "ascii")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd != keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _server() -> Server:
    from softroce_lab.programs.rdmacm.server import Server

    return Server.of_host()


def serve(
    listening: socket.socket,
    find_program: Callable[[], int | None],
    make_server: Callable[[], Server],
) -> None:
    """Serve all that connect, until all programs have ended and their peers know.

    `find_program` opens a descriptor of one that runs, which is readable when it has ended.
    """
    server: Server | None = None
    program: int | None = None
    last_seen_s = time.monotonic()  # of a program
    with contextlib.ExitStack() as stack:
        while True:
            if program is None:
                program = find_program()
            now_s = time.monotonic()
            if program is not None:
                last_seen_s = now_s
            elif server is None or not server.is_needed(now_s - last_seen_s):
                return
            for fd, events in _reported(listening, program, server):
                if fd == program:
                    os.close(program)
                    program = None
                    continue
                server = server or stack.enter_context(contextlib.closing(make_server()))
                if fd == listening.fileno():
                    server.admit(listening.accept()[0])
                else:
                    server.handle(fd, events)
            if server is not None:
                server.keep_time()


def _reported(
    listening: socket.socket, program: int | None, server: Server | None
) -> list[tuple[int, int]]:
    """What `select.poll` reports, once there is something to do."""
    poller = select.poll()
    for fd in (listening.fileno(), program):
        if fd is not None:
            poller.register(fd, select.POLLIN)
    for fd, events in server.awaited.items() if server else ():
        poller.register(fd, events)
    return poller.poll(server.wait_ms if server else None)
