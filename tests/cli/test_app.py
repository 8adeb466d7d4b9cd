# SPDX-License-Identifier: GPL-2.0-or-later
"""The command as a user starts it: a process, its exit code, stdout and stderr."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from softroce_lab import __version__, errors, paths
from softroce_lab.cli import app as cli


def lab(*arguments, module="softroce_lab.cli", cwd=paths.PROJECT_ROOT):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=os.environ | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def python(text, *arguments):
    """A text of Python in a process with a session of its own, so that it may signal its group."""
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        cwd=paths.PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )


def with_verb(monkeypatch, function):
    """The command line with one more verb, `fake`, that calls `function`."""
    application = typer.Typer(add_completion=False)
    application.command()(function)
    monkeypatch.setitem(cli.VERBS, "fake", "fake")
    monkeypatch.setitem(sys.modules, "softroce_lab.cli.fake", SimpleNamespace(app=application))
    return CliRunner().invoke(cli.app, ["fake"])


HEAVY = {"numpy", "pyarrow", "bcc", "pyroute2"}
IMPORTED = """
import sys, softroce_lab.cli.app as cli
try:
    cli.app(sys.argv[1:])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "begins", "late"),
    [
        (["--version"], f"softroce_lab {__version__}\n", HEAVY | {"pydantic"}),
        (["up", "two-hosts", "--dry-run"], "two-hosts planned: ", HEAVY | {"rich"}),
    ],
)
def test_what_takes_long_is_imported_late(arguments, begins, late):
    result = python(IMPORTED, *arguments)
    assert result.stdout.startswith(begins)
    assert late & set(result.stderr.split()) == set()


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_is_available_and_has_help(verb):
    result = CliRunner().invoke(cli.app, [verb, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "unavailable" not in result.stdout
    assert "--install-completion" not in result.stdout


def test_a_verb_that_is_nearly_known_is_suggested():
    result = lab("inspekt")
    assert (result.returncode, result.stdout) == (2, "")
    assert "'inspect'" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UserError("too loud", hint="whisper"), 2),
        (errors.EnvironmentLackError("ears", hint="grow some"), 3),
        (errors.RunError("it fell"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_becomes_its_exit_code(monkeypatch, error, code):
    def fail():
        raise error

    result = with_verb(monkeypatch, fail)
    assert result.exit_code == code
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if isinstance(error, errors.LabError):
        assert result.stderr == f"lab: {error}\n"


def test_a_verb_that_cannot_be_imported_says_why_and_leaves_the_others_alone(monkeypatch):
    monkeypatch.setitem(cli.VERBS, "nonesuch", "nonesuch")
    result = CliRunner().invoke(cli.app, ["nonesuch", "x", "--y"])
    assert result.exit_code == 3
    assert "No module named 'softroce_lab.cli.nonesuch'" in result.stderr
    shown = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "(unavailable: No module named 'softroce_lab.cli.nonesuch')" in shown.stdout


INTERRUPTED_WHILE_LOADED = """
import os, runpy, signal, sys, time

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            exec("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", globals())

sys.meta_path.insert(0, Interrupting())
runpy.run_module("softroce_lab.cli", run_name="__main__")
"""


def test_an_interrupt_while_the_command_is_loaded_ends_it_quietly():
    result = python(INTERRUPTED_WHILE_LOADED)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


PREPARED = """
import os, signal, sys, time
import softroce_lab.cli.app as cli

cli._prepare_process()
"""
WHILE_A_MODULE_IS_IMPORTED = """
sys.path.insert(0, sys.argv[1])
try:
    import swallows
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted")
"""
SWALLOWS = """
import os, signal, time

try:
    os.kill(0, signal.SIGTERM)
    time.sleep(0.1)
    os.write(1, b"imported\\n")
except KeyboardInterrupt:
    raise ValueError("as pydantic does")
"""
WHILE_A_TEXT_IS_EVALUATED = """
try:
    eval("[os.kill(os.getpid(), signal.SIGINT), time.sleep(0.1), os.write(1, b'evaluated')]")
    time.sleep(10)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_signal_waits_until_a_module_is_imported_or_a_text_evaluated(tmp_path):
    """Of typer's annotations, say; else Python would end by the signal, not with 130."""
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    result = python(PREPARED + WHILE_A_MODULE_IS_IMPORTED, str(tmp_path))
    assert (result.returncode, result.stdout) == (0, "imported\ninterrupted\n"), result.stderr
    result = python(PREPARED + WHILE_A_TEXT_IS_EVALUATED)
    assert (result.returncode, result.stdout) == (130, "evaluated"), result.stderr


IN_A_DESTRUCTOR = """
class Signalling:
    def __del__(self):
        os.kill(os.getpid(), signal.Signals[sys.argv[1]])
        time.sleep(0.1)

try:
    Signalling()
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted")
"""
TWICE = """
number = signal.Signals[sys.argv[1]]
usual_s = cli._SAME_SIGNAL_S
try:
    os.kill(0, number)
    time.sleep(10)
except KeyboardInterrupt:
    cli._SAME_SIGNAL_S = 3600.0  # however long a busy machine takes until the second one
    os.kill(0, number)  # as timeout(1) does
    print("cleaned up", flush=True)
cli._SAME_SIGNAL_S = usual_s
time.sleep(1.1)
try:
    os.kill(0, number)
    time.sleep(10)
except KeyboardInterrupt:
    print("again")
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_is_not_lost_where_python_ignores_exceptions(number):
    others = {"SIGINT", "SIGTERM", "SIGHUP"} - {number}
    ignoring = "".join(f"signal.signal(signal.{n}, signal.SIG_IGN)\n" for n in others)  # as nohup
    prepared = PREPARED.replace("cli._prepare", f"{ignoring}cli._prepare")
    result = python(prepared + IN_A_DESTRUCTOR, number)
    assert (result.returncode, result.stdout, result.stderr) == (0, "interrupted\n", "")


def test_other_exceptions_that_python_ignores_are_told():
    """As Python does."""
    fails = IN_A_DESTRUCTOR.replace("os.kill(", "int(").replace("sleep(10)", "sleep(0)")
    result = python(PREPARED + fails, "SIGINT")
    assert result.stdout == ""
    assert "Exception ignored in: <function Signalling.__del__" in result.stderr


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_comes_twice_at_once_does_not_interrupt_the_cleaning_up(number):
    result = python(PREPARED + TWICE, number)
    assert result.stdout.splitlines() == ["cleaned up", "again"], result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "incast", "--seed", "1,2"],
         "'--seed': expected a whole number; give the option once for each value"),
        (["run", "incast", "--clock", "wall"], "'--clock': 'wall' is not one of"),
        (["fuzz", "--seeds", "x"], "'--seeds': expected a whole number"),
        (["fuzz", "--duration", "x"], "--duration: 'x' is not a time"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_in_words_of_the_command_line(arguments, words):
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("lab: ")
    assert len(result.stderr.splitlines()) == 2  # the last one is a hint
