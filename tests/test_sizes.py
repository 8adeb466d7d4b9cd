# SPDX-License-Identifier: GPL-2.0-or-later
"""Files, functions and folders are small; docs/architecture.md has the exceptions, with reasons."""

import ast
import collections
import re

import pytest

from softroce_lab.paths import PROJECT_ROOT

MOST_LINES, MOST_FUNCTION_LINES, MOST_FILES = 600, 60, 25
SOURCES = [
    path
    for room in ("softroce_lab", "native", "xdp")
    for path in sorted((PROJECT_ROOT / room).rglob("*"))
    if path.suffix in {".py", ".cpp", ".hpp", ".c", ".h"}
]


def listed():
    """The names in the first column of the table of exceptions."""
    page = (PROJECT_ROOT / "docs/architecture.md").read_text()
    table = page.partition("## What is larger than the rule")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}


def relative(path):
    return str(path.relative_to(PROJECT_ROOT))


def long_functions(text):
    """Names of a Python file's functions with too many lines."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, functions) and node.end_lineno - node.lineno >= MOST_FUNCTION_LINES
    ]


def test_there_is_a_list():
    assert {"xdp/fabric.c", "native/engine/striped", "perf"} <= listed()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_and_its_functions_are_small(path):
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES or relative(path) in listed()
    if path.suffix == ".py":
        assert set(long_functions(text)) <= listed()


def test_folders_are_small():
    counts = collections.Counter(
        path.parent for path in SOURCES if path.name not in {"__init__.py", "__main__.py"}
    )
    large = {relative(folder) for folder, count in counts.items() if count > MOST_FILES}
    assert large <= listed()


def test_what_is_listed_is_large():
    """An exception that is not needed any more leaves the list."""
    counts = collections.Counter(relative(path.parent) for path in SOURCES)
    for name in listed():
        if "/" in name:
            path = PROJECT_ROOT / name
            lines = 0 if path.is_dir() else path.read_text().count("\n")
            assert lines > MOST_LINES or counts[name] > MOST_FILES, name


def test_a_long_function_is_found():
    assert long_functions("def f():\n" + "    x()\n" * 60) == ["f"]
    assert long_functions("def f():\n" + "    x()\n" * 59) == []
