# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab capture`: packets on links of a lab that is up, into a file, a pipe, or as text."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.cli import completion
from softroce_lab.cli.modes import ModalCommand, Mode
from softroce_lab.cli.options import (
    Duration,
    Json,
    Lab,
    Quiet,
    parse_duration_s,
    print_document,
    saying,
)
from softroce_lab.errors import RunError, UserError
from softroce_lab.experiment import capturing
from softroce_lab.fabric.observe import view
from softroce_lab.fabric.observe.capture import Capture
from softroce_lab.fabric.rights import needing_root
from softroce_lab.inputs.validation import listed
from softroce_lab.telemetry.capture_figures import Figures, check_snap
from softroce_lab.telemetry.packet_lines import Lines, of_file

app = typer.Typer(add_completion=False)

_PIECE_BYTES = 1 << 20
_TURN_S = 3600.0  # a capture without an end is waited for in turns


WriteFile = Annotated[
    str | None,
    typer.Option("-w", "--write", metavar="FILE", help="Write pcapng to FILE; -: standard output."),
]
ReadFile = Annotated[
    Path | None,
    typer.Option(
        "-r", "--read", metavar="FILE", help="Print the packets of a pcapng or pcap FILE."
    ),
]


class _Command(ModalCommand):
    """A file is read as it is: nothing is chosen but how many packets."""

    modes = (
        Mode(
            "-r FILE",
            lambda params: params["read"] is not None,
            ("links", "file", "snap", "duration", "lab", "as_json"),
        ),
    )


@app.command(cls=_Command)
def capture(
    links: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LINK|NODE]...",
            help="a->b, a<->b, a node or a node:port; globs; default: all links.",
            autocompletion=completion.links,
        ),
    ] = None,
    file: WriteFile = None,
    read: ReadFile = None,
    snap: Annotated[
        int,
        typer.Option(
            "-s", "--snap", metavar="BYTES", help="Bytes captured of each packet; 0: all."
        ),
    ] = 0,
    count: Annotated[
        int, typer.Option("-c", "--count", min=0, help="Stop after N packets; 0: no limit.")
    ] = 0,
    duration: Duration = None,
    lab: Lab = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Capture packets at the faults, dropped ones included; print them or write pcapng.

    Ctrl-C ends the capture and prints the numbers of captured and missed packets.
    """
    if read is not None:
        _print_file(read, count, saying(quiet))
        return
    if as_json and file in (None, "-"):
        raise UserError("--json and packets would mix on standard output", hint="add -w FILE")
    check_snap(snap)
    seconds = None if duration is None else parse_duration_s(duration)
    seen = view.of_lab(lab)
    chosen = capturing.links_of(seen.plan, links or ["*"])
    with needing_root(), _output(file) as output:
        running = Capture(seen.directory, chosen, output.fd, snap_bytes=snap, most_packets=count)
        with running:
            output.begin()
            begun = f"capturing {listed(list(chosen.values()), 4)}; Ctrl-C ends it"
            figures = _until_over(running, seconds, lambda: saying(quiet)(begun))
            output.finish()
    _tell(figures, output.name, as_json=as_json, quiet=quiet)
    if figures.error not in (0, errno.EPIPE):  # a reader that went away had enough
        raise RunError(
            f"the capture ended early: {os.strerror(figures.error)}",
            hint="what was written until then is whole",
        )


def _print_file(path: Path, count: int, say: Callable[[str], None]) -> None:
    """Print its packets, `count` at most; 0: all. UserError."""
    notes: list[str] = []
    try:
        for number, line in enumerate(of_file(path, notes), 1):
            print(line)
            if number == count:
                break
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read them had enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - nothing left to flush
    for note in notes:
        say(f"{path}: {note}")


def _until_over(running: Capture, seconds: float | None, begun: Callable[[], None]) -> Figures:
    """Wait for its end, or bring it about."""
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        begun()
        while deadline is None or time.monotonic() < deadline:
            left_s = _TURN_S if deadline is None else min(_TURN_S, deadline - time.monotonic())
            if (figures := running.wait(left_s)) is not None:
                return figures
    except KeyboardInterrupt:
        pass
    return running.end()


def _tell(figures: Figures, name: str, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_document(file=name, **figures.document())
        return
    say = saying(quiet)
    say(capturing.summary(figures.document()) + (f": {name}" if name else ""))
    for each in figures.interfaces:
        if each.missed:
            say(f"  {each.name}: {each.missed:,} of {each.received:,} missed")


@dataclasses.dataclass(slots=True)
class _Output:
    """Where packets go: `printer` prints what comes through the pipe of which `fd` is an end."""

    fd: int
    name: str = ""
    printer: threading.Thread | None = None

    def begin(self) -> None:
        """The monitor has the descriptor: of a pipe its own is to be the only writing end."""
        if self.printer is not None:
            os.close(self.fd)
            self.printer.start()

    def finish(self) -> None:
        """The monitor has written all: wait until what is left is printed."""
        if self.printer is not None:
            self.printer.join()


def _print_packets(source: int) -> None:
    """Print what comes through a pipe; in a thread, for the monitor waits for no reader."""
    lines = Lines()
    try:
        while piece := os.read(source, _PIECE_BYTES):
            sys.stdout.write("".join(f"{line}\n" for line in lines.of(piece)))
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read them had enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - nothing left to flush
    finally:
        os.close(source)


@contextmanager
def _output(file: str | None) -> Iterator[_Output]:
    """A file, standard output, or lines of text. UserError."""
    if file is None:
        source, fd = os.pipe2(os.O_CLOEXEC)
        printer = threading.Thread(target=_print_packets, args=(source,), daemon=True)
        yield _Output(fd, printer=printer)
    elif file == "-":
        fd = _standard_output()
        try:
            yield _Output(fd)
        finally:
            os.close(fd)
    else:
        with capturing.opened(Path(file)) as fd:
            yield _Output(fd, file)


def _standard_output() -> int:
    """Standard output, opened anew, for the monitor never waits for it. UserError."""
    if sys.stdout.isatty():
        hint = "lab capture -w - | wireshark -k -i -, or -w FILE"
        raise UserError("a terminal cannot show pcapng", hint=hint)
    own = sys.stdout.fileno()
    flags = fcntl.fcntl(own, fcntl.F_GETFL) & os.O_APPEND
    try:
        fd = os.open(f"/proc/self/fd/{own}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except OSError as error:
        raise UserError(f"cannot write to standard output: {error.strerror}", hint="-w FILE") from (
            error
        )
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.lseek(fd, os.lseek(own, 0, os.SEEK_CUR), os.SEEK_SET)
    return fd
