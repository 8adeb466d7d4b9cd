# SPDX-License-Identifier: GPL-2.0-or-later
"""Process 1 of a kernel host: sets the guest up as configured, then runs commands for the lab.

It runs in the guest, on Debian's Python and its standard library alone. What the guest is to be
comes from QEMU's fw_cfg; commands come over virtio-serial ports called `lab.0`, `lab.1` and so on,
one command at a time on each. On a port, either side sends lines of JSON:

    {"id", "run": argv, "env", "cwd", "tty"}   begin this; `id` is in every line about it
    {"id", "in": base64} {"id", "eof"}         its standard input, and the end of that
    {"id", "kill": signal}                     to all its processes
    {"id", "took": bytes}                      of its standard input, which it has read
    {"id", "out": base64} {"id", "err": base64}
    {"id", "exit": status}                     negative: by that signal; always the last line

A client that hangs up, or begins another command, has the old one killed. Lines that make no sense
are remains of a client that died, and ignored. A port is always read, for a client may have hung up
and another come unnoticed; so clients hold back input of which too much has not been taken.
"""

import base64
import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator

CONFIG = "/sys/firmware/qemu_fw_cfg/by_name/opt/softroce_lab/config/raw"
NAME_PREFIX = "lab."
PORTS = "/sys/class/virtio-ports"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "vt100",
}
CHUNK_BYTES = 16384
MOST_WAITING_BYTES = 1 << 18  # of output, before the command has to wait
GRACE_S = 0.3  # that processes left behind may hold a finished command's output open
LOOK_S = 2.0  # how often to look at ports that nobody is connected to, should a signal be lost
DEVICE_S = 10.0


class SetupError(Exception):
    """The guest cannot apply its settings."""


# --- Becoming the host ---------------------------------------------------------------------------


def call(*argv: str) -> None:
    """Run a command to its end; SetupError if it fails."""
    status = os.waitstatus_to_exitcode(
        os.waitpid(os.posix_spawnp(argv[0], argv, ENVIRONMENT), 0)[1]
    )
    if status:
        raise SetupError(f"{' '.join(argv)} ended with status {status}")


def write(path: str, text: str) -> None:
    """Into a file that is there, or a new one."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def set_up(config: dict) -> None:
    """Name, addresses, routes and RDMA devices, as `config` has them."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
    write("/proc/sys/kernel/hostname", config["name"])
    write("/etc/hosts", config["hosts"])
    write("/run/lab-network", config["network"])
    call("ip", "-batch", "/run/lab-network")
    for version, routes in config["routes"].items():
        write(f"/run/lab-routes{version}", routes)
        call("ip", f"-{version}", "-batch", f"/run/lab-routes{version}")
    for number, port in enumerate(config["rails"]):
        call("rdma", "link", "add", f"rxe{number}", "type", "rxe", "netdev", port)
        wait_for(f"/dev/infiniband/uverbs{number}")


def wait_for(path: str) -> None:
    """SetupError if the file does not come to be."""
    deadline = time.monotonic() + DEVICE_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise SetupError(f"there is no {path}")
        time.sleep(0.02)


# --- What clients say ----------------------------------------------------------------------------


def understood(line: bytes) -> dict | None:
    """The request of a line; None if it makes no sense. Process 1 survives whatever is sent."""
    try:
        request = json.loads(line)
        if not isinstance(request, dict) or not isinstance(request.get("id"), str):
            return None
        if "in" in request:
            request["in"] = base64.b64decode(request["in"])
    except (ValueError, TypeError, RecursionError):
        return None
    if "run" in request and not runnable(request):
        return None
    if "kill" in request and request["kill"] not in signal.valid_signals():
        return None
    return request


def runnable(request: dict) -> bool:
    """Whether a request to run something has the shape of one."""
    argv, env, cwd, tty = (request.get(name) for name in ("run", "env", "cwd", "tty"))
    texts = [argv, [*env, *env.values()] if isinstance(env, dict) else env or []]
    return (
        bool(argv)
        and all(isinstance(each, list) for each in texts)
        and all(isinstance(text, str) for each in texts for text in each)
        and (cwd is None or isinstance(cwd, str))
        and (not tty or (isinstance(tty, list) and len(tty) == 2 and all(map(is_size, tty))))
    )


def is_size(number: object) -> bool:
    """Whether a terminal can have so many rows or columns."""
    return isinstance(number, int) and 0 <= number < 1 << 16


# --- Commands ------------------------------------------------------------------------------------


class Command:
    """A running command, the ends of its pipes, and what is on its way through them."""

    def __init__(self, request: dict) -> None:
        """Start it. OSError."""
        self.id = request["id"]
        self.status = None
        self.ended = None  # when it was
        self.input = bytearray()
        self.no_more_input = False
        tty = request.get("tty")
        self.pid, self.stdin, self.outputs = self._fork(request, tty)
        for fd in (self.stdin, *self.outputs):
            os.set_blocking(fd, False)

    @staticmethod
    def _fork(request: dict, tty: list | None) -> tuple[int, int, dict[int, str]]:
        if tty:
            master, slave = os.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *tty, 0, 0))
            ends, child_ends = (master, {master: "out"}), (slave,) * 3
        else:
            pipes = os.pipe(), os.pipe(), os.pipe()
            ends = pipes[0][1], {pipes[1][0]: "out", pipes[2][0]: "err"}
            child_ends = pipes[0][0], pipes[1][1], pipes[2][1]
        leads, leading = os.pipe()
        pid = os.fork()
        if pid == 0:
            become(request, child_ends, leading, bool(tty))
        for fd in {*child_ends, leading}:
            os.close(fd)
        os.read(leads, 1)  # from now on signals reach it
        os.close(leads)
        return pid, *ends

    def kill(self, number: int) -> None:
        """Send a signal to all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def write_input(self) -> int:
        """Hand on what the command takes; how many bytes that was."""
        if self.stdin in self.outputs and self.no_more_input and not self.input:
            self.input += b"\4"  # a terminal's end of file
            self.no_more_input = False
        before = len(self.input)
        try:
            while self.input and self.stdin >= 0:
                del self.input[: os.write(self.stdin, self.input[:CHUNK_BYTES])]
        except BlockingIOError:
            return before - len(self.input)
        except OSError:  # it reads no more
            self.input.clear()
            self.no_more_input = True
        if self.no_more_input:
            self.close_input()
        return before - len(self.input)

    def close_input(self) -> None:
        """Let its standard input end, unless it is a terminal."""
        if self.stdin >= 0 and self.stdin not in self.outputs:
            os.close(self.stdin)
        self.stdin = -1

    def read_output(self, fd: int) -> tuple[str, bytes | None]:
        """(which output, data); empty at its end."""
        kind = self.outputs[fd]
        try:
            data = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return kind, None
        except OSError:  # EIO: a terminal that its last process has left
            data = b""
        if not data:
            self.close_output(fd)
        return kind, data

    def close_output(self, fd: int) -> None:
        """Listen to it no more."""
        del self.outputs[fd]
        os.close(fd)
        if self.stdin == fd:
            self.stdin = -1

    def close(self) -> None:
        """Let go of all its pipes."""
        self.close_input()
        for fd in list(self.outputs):
            self.close_output(fd)


def become(request: dict, ends: tuple[int, int, int], leading: int, tty: bool) -> None:
    """In the child: the command, or the end with a word about why not."""
    try:
        os.setsid()
        os.write(leading, b"y")
        if tty:
            fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)
        for number, fd in enumerate(ends):
            os.dup2(fd, number)
        os.closerange(3, 1024)
        for number in (signal.SIGPIPE, signal.SIGIO, signal.SIGCHLD, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(request.get("cwd") or "/root")
        argv = request["run"]
        os.execvpe(argv[0], argv, {**ENVIRONMENT, **(request.get("env") or {})})  # noqa: S606
    except BaseException as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) else repr(error)
        with contextlib.suppress(OSError):
            os.write(2, f"cannot run {request['run'][0]}: {why}\n".encode())
        os._exit(127 if getattr(error, "errno", 0) == errno.ENOENT else 126)


# --- Ports ---------------------------------------------------------------------------------------


class Port:
    """One virtio-serial port, and the command that its client has running."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(self.fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        self.connected = True  # until it turns out otherwise
        self.input = bytearray()
        self.output = bytearray()
        self.command = None

    def events(self) -> Iterator[tuple[int, int]]:
        """(descriptor, poll's events) of all that may go on here."""
        if not self.connected:
            return
        command = self.command
        yield self.fd, select.POLLIN | (select.POLLOUT if self.output else 0)
        if command is None:
            return
        if command.input and command.stdin >= 0 and command.stdin not in command.outputs:
            yield command.stdin, select.POLLOUT
        for fd in command.outputs:
            reads = select.POLLIN if len(self.output) < MOST_WAITING_BYTES else 0
            writes = select.POLLOUT if command.input and command.stdin == fd else 0
            if reads or writes:
                yield fd, reads | writes

    def handle(self, fd: int, events: int) -> None:
        """What poll found at one of them."""
        if fd == self.fd:
            self.exchange(events)
        elif self.command is not None:
            if events & select.POLLOUT:
                self.pass_input()
            if fd in self.command.outputs and events & (select.POLLIN | select.POLLHUP):
                kind, data = self.command.read_output(fd)
                if data:
                    self.say({kind: base64.b64encode(data).decode()})

    def exchange(self, events: int) -> None:
        """Take and give what there is to the client."""
        if events & select.POLLHUP:
            self.hang_up()
            return
        if events & select.POLLOUT:
            self.flush()
        if events & select.POLLIN:
            with contextlib.suppress(BlockingIOError):
                self.input += os.read(self.fd, 4 * CHUNK_BYTES)
            *lines, rest = self.input.split(b"\n")
            self.input = rest
            for line in lines:
                self.obey(line)

    def hang_up(self) -> None:
        """The client is gone."""
        self.connected = False
        self.input.clear()
        self.output.clear()
        self.drop_command()

    def drop_command(self) -> None:
        """Kill it, if it runs, and forget it."""
        if self.command is not None:
            if self.command.status is None:
                self.command.kill(signal.SIGKILL)
            self.command.close()
            self.command = None

    def obey(self, line: bytes) -> None:
        """Execute the client's request."""
        request = understood(line)
        if request is None:
            return
        if "run" in request:
            self.begin(request)
        elif self.command is None or request["id"] != self.command.id:
            return
        elif "in" in request:
            self.command.input += request["in"]
            self.pass_input()
        elif "eof" in request:
            self.command.no_more_input = True
            self.pass_input()
        elif "kill" in request:
            self.command.kill(request["kill"])

    def pass_input(self) -> None:
        """To the command, what it takes; the client may send so much more."""
        if taken := self.command.write_input():
            self.say({"took": taken})

    def begin(self, request: dict) -> None:
        """Start a command in the place of any other."""
        self.drop_command()
        self.output += b"\n"  # behind what the last client did not take
        try:
            self.command = Command(request)
        except OSError as error:
            text = f"cannot run {request['run'][0]}: {error.strerror}\n".encode()
            self.say({"err": base64.b64encode(text).decode()}, request["id"])
            self.say({"exit": 126}, request["id"])

    def say(self, fields: dict, number: str | None = None) -> None:
        """Send a line to the client."""
        line = {"id": number or self.command.id, **fields}
        self.output += json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what the port takes."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self.output:
                del self.output[: os.write(self.fd, self.output[: 4 * CHUNK_BYTES])]

    def finish(self, now: float) -> float | None:
        """Report a command that has ended once its output has, too; else when to look again."""
        command = self.command
        if command is None or command.status is None:
            return None
        if command.outputs and now < command.ended + GRACE_S:
            return command.ended + GRACE_S
        self.say({"exit": command.status})
        command.close()
        self.command = None
        return None


def open_ports() -> list[Port]:
    """All ports that are ours, by descriptor."""
    found = []
    for entry in os.listdir(PORTS):
        with open(f"{PORTS}/{entry}/name", encoding="utf-8") as file:
            if file.read().startswith(NAME_PREFIX):
                found.append(Port(f"/dev/{entry}"))
    return found


def reap(ports: list[Port]) -> None:
    """Note which commands have ended, and bury whatever else has."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            for port in ports:
                if port.command is not None and port.command.pid == pid:
                    port.command.status = os.waitstatus_to_exitcode(status)
                    port.command.ended = time.monotonic()


def serve(ports: list[Port], wake: int) -> None:
    """Run commands for ever."""
    while True:
        reap(ports)
        now = time.monotonic()
        times = [when for port in ports if (when := port.finish(now)) is not None]
        poller, owners = select.poll(), {}
        poller.register(wake, select.POLLIN)
        for port in ports:
            for fd, events in port.events():
                poller.register(fd, events)
                owners[fd] = port
        left_s = min([LOOK_S, *(when - now for when in times)])
        found = poller.poll(max(0.0, left_s) * 1000)
        for fd, events in found:
            if fd in owners:
                owners[fd].handle(fd, events)
        # Behind that: a client who came while the last one's leaving was noticed gave a signal.
        if not found or any(fd == wake for fd, _ in found):
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            for port in ports:
                port.connected = True


def main() -> None:
    """Until the machine is powered off."""
    os.environ.update(ENVIRONMENT)
    with open(CONFIG, encoding="utf-8") as file:
        config = json.load(file)
    try:
        set_up(config)
        wake, waker = os.pipe()
        for fd in (wake, waker):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # for the children's sake
        for number in (signal.SIGCHLD, signal.SIGIO):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        ports = open_ports()
        sys.stdout.write("softroce_lab: ready\n")
        sys.stdout.flush()
        serve(ports, wake)
    except BaseException as error:  # process 1 must not end: the kernel would panic
        sys.stdout.write(f"softroce_lab: {type(error).__name__}: {error}\n")
        sys.stdout.flush()
        write("/proc/sysrq-trigger", "o")
        while True:
            signal.pause()


main()
