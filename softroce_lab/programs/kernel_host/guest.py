# SPDX-License-Identifier: GPL-2.0-or-later
"""Running commands in a kernel host, from the lab's machine and past the lab's network.

    with lab.owned(topology.load("kernel-peer")) as up:
        guest = up.guest("k1")
        guest.run(["ibv_devinfo"], timeout_s=10).stdout
        with guest.start(["ibv_rc_pingpong", "-g", "1"]) as server:
            ...
            server.wait(10).exit_code

A guest has some virtio-serial ports, the channels, which QEMU offers as abstract sockets in the
node's namespace; agent.py answers at the other end and has the protocol. Each command has a
channel to itself, so several processes may use one guest at a time. A command lives as long as its
connection: should this process die, what it runs in guests ends.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from softroce_lab.errors import LabError, RunError
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.net import netns
from softroce_lab.programs.kernel_host import console as guest_console

CHANNELS = 16  # commands that may run at a time

_RECEIVE_BYTES = 1 << 16
_SEND_BYTES = 12288  # of input in a line
_WINDOW_BYTES = 1 << 18  # of input on its way to a command, at most
_POLL_S = 0.02
_LOOK_S = 0.5  # how often those who wait look whether the guest is still there
_KILL_S = 5.0
_END_S = 5.0  # in which a program whose peer noticed its end has ended
_OUTPUT_BYTES = 1000  # of each output that an error shows


@dataclasses.dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    argv: tuple[str, ...]
    exit_code: int  # -N: killed by signal N; 127: there is no such program
    stdout: bytes
    stderr: bytes

    def check(self) -> Self:
        """Itself, or RunError if the exit code is not 0."""
        if self.exit_code:
            output = (self.stderr or self.stdout).decode("utf-8", "replace").strip()
            line = " ".join(self.argv)
            raise RunError(f"{line} ended with {self.exit_code} in the guest; it said: {output}")
        return self

    @property
    def verdict(self) -> str:
        """Its exit code and the ends of its outputs, for an error message."""
        outputs = {"stderr": self.stderr, "stdout": self.stdout}
        shown = [
            f"{name}: {octets[-_OUTPUT_BYTES:].decode('utf-8', 'replace').strip()}"
            for name, octets in outputs.items()
            if octets.strip()
        ]
        ended = f"{' '.join(self.argv)} ended with {self.exit_code} in the guest"
        return "\n  ".join([ended, *(shown or ["without output"])])

    @property
    def text(self) -> str:
        """Its standard output as text."""
        return self.stdout.decode("utf-8", "replace")


def console_file(node: str) -> str:
    """The file in the lab's directory where a guest's console goes, and what QEMU prints."""
    return f"guest-{node}.console"


def config_file(node: str) -> str:
    """The file in the lab's directory with a guest's settings."""
    return f"guest-{node}.json"


def files(node: str) -> tuple[str, str]:
    """A guest's files in the lab's directory, for the ledger."""
    return console_file(node), config_file(node)


def channel(number: int) -> str:
    """The abstract socket in a node's namespace that leads to one of the guest's ports."""
    return f"softroce_lab-guest.{number}"


class Guest:
    """A kernel host of a lab that is up; booted again, it is the same one."""

    def __init__(
        self,
        node: str,
        machine: Callable[[], ProcessIdentity],
        namespace: Callable[[], int],
        directory: Path,
    ) -> None:
        """`namespace` gives a descriptor of the node's namespace, which stays the giver's.

        `directory` is the lab's.
        """
        self.node = node
        self.console = directory / console_file(node)
        self._machine = machine
        self._namespace = namespace

    @property
    def machine(self) -> ProcessIdentity:
        """Its QEMU."""
        return self._machine()

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 60.0,
        *,
        input: bytes | None = None,  # noqa: A002 - as subprocess.run has it
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run a command (no shell) to its end.

        RunError if that takes more than `timeout_s` seconds, or if the guest dies. What the
        command itself returns is its caller's to judge: `run(...).check()`.
        """
        with self.start(argv, env=env, cwd=cwd) as command:
            # Aside, for a command need not read what it is given, and time goes on.
            feeder = threading.Thread(target=command.feed, args=(input or b"",), daemon=True)
            feeder.start()
            try:
                return command.wait(timeout_s)
            finally:
                command.close()
                feeder.join(_KILL_S)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        tty: tuple[int, int] | None = None,
    ) -> Command:
        """Begin a command, with a terminal of so many rows and columns if `tty` is given.

        RunError if the guest is dead or has too many commands running.
        """
        request = {"run": list(argv), "env": dict(env or {}), "cwd": cwd, "tty": tty}
        return Command(self, self._connected(), tuple(argv), request)

    def put(self, path: str, data: bytes, *, timeout_s: float = 60.0) -> None:
        """Write a file in the guest, whose folder is there. RunError."""
        self.run(["dd", f"of={path}", "status=none"], timeout_s, input=data).check()

    def get(self, path: str, *, timeout_s: float = 60.0) -> bytes:
        """What a file in the guest holds. RunError."""
        return self.run(["cat", path], timeout_s).check().stdout

    def is_alive(self) -> bool:
        """Whether its QEMU runs."""
        return self.machine.is_alive()

    def check_alive(self) -> None:
        """GuestDeadError if it is dead."""
        if not self.is_alive():
            raise GuestDeadError(self.node, self.console)

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """What fails in this `with` block because the guest died fails with GuestDeadError.

        Others learn of its death by silence, or by what does not come back.
        """
        try:
            yield
        except LabError:
            self.check_alive()
            raise

    def await_ready(self, deadline: float, check: Callable[[], None]) -> None:
        """Wait until it runs commands, until time.monotonic() is `deadline`.

        `check` is called meanwhile and may raise. RunError.
        """
        while not self._answers(deadline, check):
            self.check_alive()
            check()
            if time.monotonic() > deadline:
                raise RunError(
                    f"the kernel host {self.node} did not come up in time"
                    + guest_console.last_words(self.console)
                )
            time.sleep(_POLL_S)

    def _answers(self, deadline: float, check: Callable[[], None]) -> bool:
        """Whether it has run a command; False if QEMU does not listen, or time is up."""
        try:
            with self.start(["true"]) as command:
                while command.poll() is None and time.monotonic() < deadline:
                    check()
                    command.ends(_POLL_S)
                return command.poll() == 0
        except UnreachableError:
            return False

    def _connected(self) -> _Channel:
        self.check_alive()
        try:
            with netns.entered(self._namespace()):
                for number in range(CHANNELS):
                    if (free := _Channel.claim(channel(number))) is not None:
                        return free
        except ConnectionRefusedError as error:
            raise UnreachableError(f"the QEMU of {self.node} does not listen") from error
        raise RunError(
            f"{self.node} has {CHANNELS} commands running, and takes no more",
            hint="wait for one of them to end",
        )


class GuestDeadError(RunError):
    """A kernel host has died; `panic` is its kernel's panic report, if there is one."""

    def __init__(self, node: str, console: Path) -> None:
        super().__init__(
            f"the kernel host {node} is dead{guest_console.last_words(console)}",
            hint=f"all of its console: lab kernel-host console {node}; "
            f"then: lab kernel-host boot {node}",
        )
        self.panic = guest_console.read_panic(console)


class UnreachableError(RunError):
    """QEMU is starting, or ending."""


class _Channel:
    """A connection to one of the guest's ports, and the claim to it."""

    def __init__(self, claim: socket.socket, connection: socket.socket) -> None:
        self._claim = claim
        self.connection = connection

    @classmethod
    def claim(cls, name: str) -> _Channel | None:
        """Connect, or None if somebody else uses it. ConnectionRefusedError."""
        kinds = socket.AF_UNIX, socket.SOCK_STREAM
        claim = socket.socket(*kinds)
        try:
            claim.bind(f"\0{name}.claim")
        except OSError:
            claim.close()
            return None
        connection = socket.socket(*kinds)
        try:
            connection.connect(f"\0{name}")
        except BaseException:
            connection.close()
            claim.close()
            raise
        return cls(claim, connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self._claim.close()


class Command:
    """A command that runs in a guest; leaving its `with` block kills what still runs."""

    def __init__(
        self, guest: Guest, channel: _Channel, argv: tuple[str, ...], request: Mapping[str, Any]
    ) -> None:
        """Use `Guest.start`."""
        self.argv = argv
        self._guest = guest
        self._channel = channel
        self._id = secrets.token_hex(8)
        self._news = threading.Condition()
        self._output = {"out": bytearray(), "err": bytearray()}
        self._exit_code: int | None = None
        self._gone = False  # the connection is
        self._on_its_way_bytes = 0  # of input: sent, and not yet taken by the command
        self._writing = threading.Lock()
        self._send(dict(request), first=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stdout(self) -> bytes:
        """Its output so far."""
        with self._news:
            return bytes(self._output["out"])

    @property
    def stderr(self) -> bytes:
        """What it has complained about so far."""
        with self._news:
            return bytes(self._output["err"])

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._exit_code

    def check_running(self) -> None:
        """RunError if it has ended."""
        if self._exit_code is not None:
            raise RunError(self.wait(0).verdict)

    def write(self, data: bytes) -> None:
        """To its standard input. Waits while the command reads too little, and runs."""
        for first in range(0, len(data), _SEND_BYTES):
            part = data[first : first + _SEND_BYTES]
            with self._news:
                while self._on_its_way_bytes > _WINDOW_BYTES and self._reads_on:
                    self._news.wait(_LOOK_S)
                self._on_its_way_bytes += len(part)
            self._send({"in": base64.b64encode(part).decode()})

    @property
    def _reads_on(self) -> bool:
        """Whether it may still take input."""
        return self._exit_code is None and not self._gone

    def end_input(self) -> None:
        """The end of its standard input."""
        self._send({"eof": True})

    def feed(self, data: bytes) -> None:
        """All of its standard input."""
        self.write(data)
        self.end_input()

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to it and the processes that it started."""
        self._send({"kill": int(number)})

    def wait(self, timeout_s: float) -> Completed:
        """Wait for its end. RunError after `timeout_s` seconds, when it is killed, or its guest's
        death.
        """
        if not self.ends(timeout_s):
            self.close()
            raise CommandTimeoutError(self, timeout_s)
        assert self._exit_code is not None  # noqa: S101 - that is what was waited for
        return Completed(self.argv, self._exit_code, self.stdout, self.stderr)

    def ends(self, timeout_s: float) -> bool:
        """Whether it ends within `timeout_s` seconds. RunError if its guest dies."""
        return self._until(lambda: self._exit_code is not None, timeout_s)

    def expect(self, text: bytes, timeout_s: float) -> bytes:
        """Wait until its output has `text` in it; what it printed so far. RunError as of `wait`, or
        if it ends without having printed that.
        """

        def output() -> bool:
            return text in self._output["out"] or text in self._output["err"]

        if not self._until(lambda: output() or self._exit_code is not None, timeout_s):
            raise CommandTimeoutError(self, timeout_s)
        if not output():
            done = Completed(self.argv, self._exit_code or 0, self.stdout, self.stderr)
            done.check()
            raise RunError(f"{' '.join(self.argv)} ended without saying {text!r} in the guest")
        return self.stdout

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """A failure in this `with` block also names how the command ended, if it has ended.

        Its peer notices only that a connection was closed or that packets are not acknowledged.
        """
        try:
            yield
        except LabError as error:
            if self.ends(_END_S) and (verdict := self.wait(0).verdict) not in error.what:
                error.what += f"; {verdict}"
            raise

    def stream(self, take: Callable[[str, bytes], None]) -> int:
        """Hand over output (`out` or `err`, and data) as it comes, until the end; the exit code.

        RunError if the guest dies.
        """
        while True:
            with self._news:
                fresh = {kind: bytes(data) for kind, data in self._output.items() if data}
                for data in self._output.values():
                    data.clear()
                if not fresh and self._exit_code is not None:
                    return self._exit_code
                if not fresh:
                    self._check_connection()
                    self._news.wait(_LOOK_S)
            for kind, data in fresh.items():
                take(kind, data)

    def close(self) -> None:
        """Let go of it; what still runs is killed."""
        self._channel.close()
        self._reader.join(_KILL_S)

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with self._news:
            while not condition():
                self._check_connection()
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                self._news.wait(min(left_s, _LOOK_S))
        return True

    def _check_connection(self) -> None:
        if self._gone:
            self._guest.machine.wait(_LOOK_S)
            self._guest.check_alive()
            raise RunError(f"the connection to {self._guest.node} is gone")

    def _send(self, fields: dict[str, Any], *, first: bool = False) -> None:
        """A line; the first of all begins a new one, whatever stands before it."""
        line = json.dumps({"id": self._id, **fields}, separators=(",", ":")).encode() + b"\n"
        # What cannot be sent is found out by those who wait.
        with self._writing, contextlib.suppress(OSError):
            self._channel.connection.sendall(b"\n" * first + line)

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                data = self._channel.connection.recv(_RECEIVE_BYTES)
            except OSError:
                data = b""
            *lines, rest = (rest + data).split(b"\n")
            with self._news:
                for line in lines:
                    self._take(line)
                self._gone = not data
                self._news.notify_all()
            if not data:
                return

    def _take(self, line: bytes) -> None:
        """What the agent reports of this command; the rest is of others, before."""
        try:
            answer = json.loads(line)
        except ValueError:
            return
        if not isinstance(answer, dict) or answer.get("id") != self._id:
            return
        self._on_its_way_bytes -= int(answer.get("took", 0))
        for kind, output in self._output.items():
            if kind in answer:
                output += base64.b64decode(answer[kind])
        if "exit" in answer:
            self._exit_code = int(answer["exit"])


class CommandTimeoutError(RunError, TimeoutError):
    """A command did not do what was waited for."""

    def __init__(self, command: Command, timeout_s: float) -> None:
        output = (command.stderr or command.stdout)[-400:].decode("utf-8", "replace").strip()
        super().__init__(
            f"{' '.join(command.argv)} took more than {timeout_s:g} s in the guest"
            + (f"; it said: {output}" if output else "")
        )
