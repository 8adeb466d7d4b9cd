# SPDX-License-Identifier: GPL-2.0-or-later
"""The `lab` command. A verb's module is imported when that verb is named, not before.

The module `cli/<group>/<verb>.py` holds `app = typer.Typer(add_completion=False)`: one
`@app.command()` makes a plain verb (`lab up`), an `@app.callback()` beside it makes a group
(`lab fault set`).
A verb's `-` is a `_` in the name of its module.
To add a verb, write its file and put its name into `GROUPS`.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import sys
import threading
import time
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import CompletionItem, TyperGroup

from softroce_lab import __version__
from softroce_lab.errors import EnvironmentLackError, ExitCode, LabError

TITLES = {
    "experiments": "Experiments",
    "results": "Results",
    "labs": "Labs",
    "observe": "Observe a lab",
    "programs": "RDMA programs",
    "evidence": "Captures and checks",
    "development": "Development",
}
"""What `lab --help` calls the folders of `cli/`."""

GROUPS = {
    "experiments": (
        *("demo", "run", "workload", "sweep", "crosscheck", "fuzz", "model", "new"),
        "learn",
    ),
    "results": (
        *("list", "show", "rerun", "explain", "blame", "report", "compare", "plot", "export"),
        "artifact",
    ),
    "labs": ("up", "down", "status", "exec", "fault", "kernel-host", "gc", "doctor"),
    "observe": ("graph", "inspect", "top", "stats", "ping", "trace"),
    "programs": ("perf",),
    "evidence": ("capture", "check", "wireshark"),
    "development": ("test",),
}
"""The folders of `cli/`, and the verbs in each."""

VERBS = {verb: group for group, verbs in GROUPS.items() for verb in verbs}
"""Every verb, and the folder that its module is in."""


_OUTPUT_ERRORS = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT)


class LazyGroup(TyperGroup):
    """The verbs, each loaded on first use; the one place where a LabError becomes an exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict[str, Any].fromkeys(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb, or None if there is no such verb."""
        if cmd_name in VERBS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The verbs that begin so, none of them loaded."""
        offered = [CompletionItem(verb) for verb in VERBS if verb.startswith(incomplete)]
        return offered or super().shell_complete(ctx, incomplete)  # options

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; typer itself turns an interrupt into exit code 130."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except LabError as error:
            from softroce_lab.cli.typed import as_typed  # late: completion waits for nothing

            typer.echo(f"lab: {as_typed(str(error), VERBS)}", err=True)
            raise typer.Exit(error.exit_code) from error
        except typer.BadParameter as error:
            error.message = _plain(error)
            raise
        except OSError as error:
            if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
                raise
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - nothing left to flush
            typer.echo(f"lab: cannot write the output: {error.strerror}", err=True)
            raise typer.Exit(ExitCode.FAILED) from error
        return result


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


def _load(verb: str) -> Any:
    try:
        module = importlib.import_module(f"softroce_lab.cli.{VERBS[verb]}.{verb.replace('-', '_')}")
    except ImportError as error:
        application = _unavailable(verb, error)
    else:
        application = module.app
    command = typer.main.get_command(application)
    command.name = verb
    command.rich_help_panel = TITLES[VERBS[verb]]
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


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


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
        if _is_loading(frame):
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


def _is_loading(frame: FrameType | None) -> bool:
    """Whether a module is imported, or a text evaluated.

    Of an interrupt pydantic makes a SchemaError there, where it builds schemas. And CPython ends by
    SIGINT, whatever the exit status, once one has left a text (`_Py_UnhandledKeyboardInterrupt`).
    """
    while frame is not None and frame.f_back is not None:  # the first one is that of python -c
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            return True
        if (code.co_filename, code.co_name) == ("<string>", "<module>"):
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
