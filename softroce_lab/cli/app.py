# SPDX-License-Identifier: GPL-2.0-or-later
"""The `lab` command. A verb's module is imported when that verb is named, not before.

A verb's module holds `app = typer.Typer(add_completion=False)`. One `@app.command()` makes a plain
verb (`lab exec`); an `@app.callback()` makes a verb with parts in one module (`lab fault set`).
To add a verb, write its module `cli/VERB.py` and put its name into `PANELS`; to add a part of a
group, write `cli/GROUP/PART.py` and put its name into `GROUPS`. A module of several verbs, or of
several parts, is named in `SHARED`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Annotated, Any, ClassVar, NamedTuple

import typer
from typer.core import CompletionItem, TyperGroup

from softroce_lab import __version__
from softroce_lab.errors import EnvironmentLackError, ExitCode, LabError

PANELS = {
    "Experiments": ("demo", "run", "fuzz", "new", "learn", "model"),
    "Results": ("results", "verify"),
    "Labs": ("up", "down", "ps", "exec", "ssh", "fault", "kernel-host", "doctor"),
    "Observe a lab": ("inspect", "top", "capture"),
    "RDMA programs": ("perf",),
    "Development": ("test",),
}
"""The panels of `lab --help`, and the verbs in each."""


SHARED = {
    **dict.fromkeys(("up", "down", "ps"), "labs"),
    **dict.fromkeys(("results.ls", "results.show"), "results.listing"),
    **dict.fromkeys(("results.export", "results.pack"), "results.files"),
    **dict.fromkeys(("inspect.node", "inspect.link"), "inspect.elements"),
}
"""Modules of several verbs: each is a command of this name in the module's `app`."""

VERBS = {verb: verb.replace("-", "_") for verbs in PANELS.values() for verb in verbs}
"""Every verb, and its module below softroce_lab.cli, or its package of `GROUPS`."""


class Group(NamedTuple):
    """A verb whose parts have a module each, in a package of the verb's name."""

    help: str
    parts: tuple[str, ...]


GROUPS = {
    "results": Group(
        "List, explain, compare and repeat what `lab run` has recorded.",
        ("ls", "show", "explain", "compare", "report", "plot", "export", "pack", "rerun"),
    ),
    "inspect": Group(
        "Show nodes, links, paths, counters and a picture of a lab.",
        ("node", "link", "graph", "stats", "path"),
    ),
}

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT)
_UsageError: Any = typer.BadParameter.__base__  # typer has no name for it


class LazyGroup(TyperGroup):
    """A group whose commands are loaded on first use."""

    table: ClassVar[Mapping[str, str]]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict[str, Any].fromkeys(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None if there is none."""
        if cmd_name in self.table and self.commands.get(cmd_name) is None:
            self.commands[cmd_name] = _load(cmd_name, self.table[cmd_name])
        return self.commands.get(cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands whose names begin like this, none of them loaded."""
        offered = [CompletionItem(name) for name in self.table if name.startswith(incomplete)]
        return offered or super().shell_complete(ctx, incomplete)  # options


class Root(LazyGroup):
    """The verbs; the one place where an error becomes a line and an exit code."""

    table = VERBS

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """As always, with errors of usage as one line."""
        with _usage_in_one_line():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; typer itself turns an interrupt into exit code 130."""
        try:
            with _usage_in_one_line():
                result = super().invoke(ctx)
            sys.stdout.flush()
        except LabError as error:
            _complain(str(error))
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
                raise
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - nothing left to flush
            typer.echo(f"lab: cannot write the output: {error.strerror}", err=True)
            raise typer.Exit(ExitCode.FAILED) from error
        return result


@contextlib.contextmanager
def _usage_in_one_line() -> Iterator[None]:
    """Print what is wrong with the command line as other errors are printed, not in a box."""
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # whose text is the help
            raise
        if isinstance(error, typer.BadParameter):
            error.message = _plain(error)
        command = error.ctx.command_path if error.ctx else "lab"
        hint = f"{command} --help"
        if getattr(error, "option_name", "") == "--lab":
            hint = f"{command} uses no lab that is up; {hint} lists its options"
        what = " ".join(error.format_message().split()).rstrip(".")
        _complain(f"{what}\n  hint: {hint}")
        raise typer.Exit(ExitCode.USAGE) from error


def _complain(text: str) -> None:
    """Print an error, with commands as the user types them."""
    from softroce_lab.cli.typed import as_typed  # late: completion waits for nothing

    typer.echo(f"lab: {as_typed(text, VERBS)}", err=True)


def _plain(error: typer.BadParameter) -> str:
    """Its message in words of the command line: typer passes on those of pydantic."""
    words = error.message.replace("Value error, ", "")
    for kind in ("integer", "number"):
        words = re.sub(
            f"Input should be a valid {kind}(, unable to parse string as an? {kind})?",
            "expected a whole number" if kind == "integer" else "expected a number",
            words,
        )
    repeats = words != error.message and getattr(error.param, "multiple", False)
    return f"{words}; give the option once for each value" if repeats else words


def _load(name: str, where: str) -> Any:
    if where in GROUPS:
        group = GROUPS[where]
        table = {part: f"{where}.{part}" for part in group.parts}
        parts = type("Parts", (LazyGroup,), {"table": table})
        application = typer.Typer(
            cls=parts, help=group.help, no_args_is_help=True, add_completion=False
        )
        command: Any = typer.main.get_group(application)
    else:
        module = SHARED.get(where, where)
        try:
            application = importlib.import_module(f"softroce_lab.cli.{module}").app
        except ImportError as error:
            application, module = _unavailable(name, error), where
        command = typer.main.get_command(application)
        if module != where:
            command = command.get_command(None, name)
    for each in (command, *getattr(command, "commands", {}).values()):
        for option in each.params if each else ():
            if option.param_type_name == "option" and option.is_flag:
                option.metavar = " "  # a flag has no value to name
    command.name = name
    command.rich_help_panel = next((panel for panel in PANELS if name in PANELS[panel]), None)
    return command


def _unavailable(verb: str, error: ImportError) -> typer.Typer:
    """Stands in for a verb that cannot be imported, so that the others work and help lists it."""
    application = typer.Typer(add_completion=False)

    @application.command(
        help=f"(unavailable: {error})",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def refuse() -> None:
        raise EnvironmentLackError(
            f"what `lab {verb}` needs",
            f"`lab {verb}` is unavailable: {error}",
            hint="start it with ./lab, which installs what is missing; `lab doctor` names the rest",
        ) from error

    return application


app = typer.Typer(cls=Root, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softroce_lab {__version__}")
        raise typer.Exit


@app.callback()
def lab(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Multi-path RDMA fabrics with injected faults, on one Linux machine."""


_SAME_SIGNAL_S = 1.0
_AGAIN_S = 0.02  # while nothing may be interrupted


class _Interrupting:
    """A handler of signals that end us. timeout(1) and terminals send one to us and to our group.

    The second of the two would come in the middle of what the first has us clean up.
    """

    def __init__(self) -> None:
        self._last_s = -_SAME_SIGNAL_S
        self._number: int = signal.SIGINT  # of the last one

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _must_wait(frame):
            _send_again(number)
            return
        now_s = time.monotonic()
        if now_s - self._last_s >= _SAME_SIGNAL_S:
            self._last_s, self._number = now_s, number
            raise KeyboardInterrupt

    def when_ignored(self, ignored: sys.UnraisableHookArgs) -> None:
        """Called where Python ignores an exception, in a destructor, say: an interrupt comes again.

        Else the signal would be lost, and we would run on.
        """
        if ignored.exc_type is KeyboardInterrupt:
            self._last_s = -_SAME_SIGNAL_S
            _send_again(self._number)
        else:
            sys.__unraisablehook__(ignored)


def _send_again(number: int) -> None:
    later = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
    later.daemon = True
    later.start()


def _must_wait(frame: FrameType | None) -> bool:
    """Whether a module is imported, a text evaluated, or an ignored interrupt sent again.

    Of an interrupt pydantic makes a SchemaError there, where it builds schemas. And CPython ends by
    SIGINT, whatever the exit status, once one has left a text (`_Py_UnhandledKeyboardInterrupt`).
    """
    while frame is not None and frame.f_back is not None:  # the first one is that of python -c
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            return True
        if (code.co_filename, code.co_name) == ("<string>", "<module>"):
            return True
        if code is _Interrupting.when_ignored.__code__:  # Python would ignore this one, too
            return True
        frame = frame.f_back
    return False


def _prepare_process() -> None:
    """End by every signal as by Ctrl-C, after clean-up; work with output that is closed, too."""
    interrupting = _Interrupting()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupting)
    sys.unraisablehook = interrupting.when_ignored
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - till the end


def main() -> None:
    """Run the command line of this process."""
    try:
        _prepare_process()
        app(prog_name="lab")
    except KeyboardInterrupt:  # before typer listens, or after
        sys.exit(ExitCode.INTERRUPTED)
