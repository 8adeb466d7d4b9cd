# SPDX-License-Identifier: GPL-2.0-or-later
"""Every command and every Wireshark filter that a document shows is one that exists.

A command is parsed by the command line itself, with all its options and values. Those that run or
sweep an experiment, or bring up a lab, are run as far as their plan (`--dry-run`), other verbs by
the tests of their rooms. Lessons are run as a whole (tests/learn).
"""

import re
import shlex
import shutil

import pytest
import typer
import typer.testing

from softroce_lab.cli.app import app
from softroce_lab.dissect import wireshark
from softroce_lab.paths import PROJECT_ROOT
from tests.dissect import tshark
from tests.docs.pages import SITE, WRITTEN, files
from tests.native.frames import CAPTURES

PAGES = [PROJECT_ROOT / "README.md", SITE / "index.md", *WRITTEN]
INSTALLS = "--install-completion"  # for the user who runs it, so no test does
BLOCK = re.compile(r"^(?:    |\$ |    \$ )(?:sudo )?(?:\./)?lab (\S.*)$", re.MULTILINE)
INLINE = re.compile(r"`(?:sudo )?(?:\./)?lab ([a-z][^`]*)`")
OPTIONAL = re.compile(r"\[([^\]]*)\]")
# What stands for a value in a usage line.
VALUES = {"COUNT": "1", "TIME": "1s", "N": "1", "BYTES": "64", "SEED": "1", "FILE": "mine.yaml"}


def commands():
    """(page, command as written, whether it may lack arguments)."""
    found = {}
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        name = str(page.relative_to(PROJECT_ROOT))
        for match in BLOCK.finditer(text):
            found.setdefault((name, match[1].strip()), False)
        for match in INLINE.finditer(text):
            found.setdefault((name, " ".join(match[1].split())), True)
    return [(*key, partial) for key, partial in found.items() if key[1] != INSTALLS]


def words_of(command):
    """The arguments of a command line: what a shell or a reader leaves out is left out."""
    command = re.split(r"\s{2,}#|\s#\s|\s[|&;>]+(?:\s|$)| {3,}", command)[0]
    command = OPTIONAL.sub("", command) if "'" not in command else command
    words = shlex.split(command.replace("...", "").rstrip(",:"))
    return [VALUES.get(word, word) for word in words]


UsageError = typer.BadParameter.__mro__[1]  # typer carries a click of its own


def parsed(words):
    """Parse as the command line does, without running anything. Errors of usage pass through."""
    command = typer.main.get_command(app)
    context = command.make_context("lab", list(words))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest and command.invoke_without_command:
            return  # a group that does something by itself
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, f"no verb {name}"
        context = command.make_context(name, list(rest), parent=context)


def test_documents_show_commands():
    assert len(commands()) > 150


@pytest.mark.parametrize(("page", "command", "partial"), commands())
def test_a_command_of_a_document_exists(page, command, partial, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = None
    try:
        parsed(words_of(command))
    except typer.Exit as leave:
        problem = leave.exit_code or None
    except UsageError as error:
        problem = error.format_message()
    # In the middle of a sentence a verb, or an option, is named without its arguments.
    allowed = partial and (not problem or "Missing" in problem or "requires an arg" in problem)
    assert problem is None or allowed, f"{page}: lab {command}: {problem}"


@pytest.mark.parametrize("command", ["demoo", "up --nonesuch", "run a b c d", "up --seed x"])
def test_a_command_that_does_not_exist_is_found(command):
    with pytest.raises(UsageError):
        parsed(words_of(command))


PLANNED = [
    (page, command)
    for page, command, partial in commands()
    if command.split()[0] in {"run", "up"}
    and "--list" not in command
    and (not partial or page == "README.md")
]
MINE = """\
name: mine
topology: leaf-spine
transports: [rc, irn]
seeds: [1, 2]
workload: {kind: incast, bytes: 1MiB}
"""
MINE_SWEPT = """\
name: mine
experiment: incast
over: {workload.bytes: [64KiB, 1MiB]}
transports: [rc, irn]
seeds: 2
"""
SWEEP_OPTIONS = {"--only", "--table", "--scheduler", "--jobs", "-j", "--keep-runs", "--fresh"}


def test_documents_show_experiments():
    assert len(PLANNED) > 30


@pytest.mark.parametrize(("page", "command"), PLANNED)
def test_an_experiment_of_a_document_can_be_planned(page, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lab = typer.testing.CliRunner().invoke
    assert lab(app, ["new", "transport", "mine.py"]).exit_code == 0
    (tmp_path / "examples").symlink_to(PROJECT_ROOT / "examples")
    words = words_of(command)
    (tmp_path / "mine.yaml").write_text(MINE_SWEPT if SWEEP_OPTIONS & {*words} else MINE)
    for name, text in files(PROJECT_ROOT / page).items():
        (tmp_path / name).write_text(text)
    done = lab(app, [*words, *([] if {"--dry-run", "--plan"} & {*words} else ["--dry-run"])])
    assert done.exit_code == 0, f"{page}: lab {command}: {done.output}"


# ---------------------------------------------------------------- Wireshark

FILTER = re.compile(r"-Y '([^']+)'|`((?:softroce|infiniband|frame)\.[^`]*)`")
COLUMN = re.compile(r"-e ([a-z_]+\.[a-z_.]+)")
NAME = re.compile(r"softroce(?:\.[a-z_]+)+")


def filters():
    """Display filters, and the fields of columns, which are filters by themselves."""
    found = set()
    for page in PAGES:
        text = page.read_text()
        found |= {first or second for first, second in FILTER.findall(text)}
        found |= set(COLUMN.findall(text))
    return sorted(each for each in found if "*" not in each and "|" not in each)


def test_documents_show_filters():
    assert len(filters()) >= 3


@pytest.mark.parametrize("display_filter", [*filters(), "softroce.ack.id"])
def test_the_fields_of_a_filter_exist(display_filter):
    defined = set(re.findall(r'"(softroce(?:\.[a-z_]+)+)"', wireshark.program()))
    missing = set(NAME.findall(display_filter)) - defined
    assert missing == ({"softroce.ack.id"} if display_filter == "softroce.ack.id" else set())


@pytest.mark.parametrize("display_filter", filters())
def test_tshark_understands_a_filter(display_filter, tmp_path):
    if shutil.which("tshark") is None:
        pytest.skip("no tshark")
    tshark.run(tmp_path, "-r", str(CAPTURES / "rxe_ud.pcap"), "-Y", display_filter)
