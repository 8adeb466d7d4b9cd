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
    for room in ("softroce_lab", "native", "xdp", "tests")
    for path in sorted((PROJECT_ROOT / room).rglob("*"))
    if path.suffix in {".py", ".cpp", ".hpp", ".c", ".h"}
]


def listed():
    """Names and sizes of the table of exceptions."""
    page = (PROJECT_ROOT / "docs/architecture.md").read_text()
    table = page.partition("## What is larger than the rule")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", names), size) for names, size in rows]


def relative(path):
    return str(path.relative_to(PROJECT_ROOT))


def python_functions(text):
    """Names and lines of all functions of a Python file."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, functions):
            yield node.name, node.end_lineno - node.lineno + 1


def native_functions(text):
    """The same of a C or C++ file, as clang-format sets functions that are no class's."""
    head, first = "", 0
    for number, line in enumerate(text.splitlines()):
        if head and line == "}":
            yield re.search(r"([~\w]+)\(", head)[1], number - first + 1
            head = ""
        elif head and "{" not in head:
            head += line
        elif not head and re.match(r"[A-Za-z_~].*\(", line):
            head, first = line, number
        if head.endswith((";", "}")):  # a declaration, or a body in the same line
            head = ""


def long_functions(path, text):
    found = python_functions(text) if path.suffix == ".py" else native_functions(text)
    return {name: lines for name, lines in found if lines > MOST_FUNCTION_LINES}


def large():
    """Everything above the rule, with its size."""
    found = {}
    for path in SOURCES:
        text = path.read_text()
        found |= long_functions(path, text)
        if (lines := text.count("\n")) > MOST_LINES:
            found[relative(path)] = lines
    files = (path for path in SOURCES if path.name not in {"__init__.py", "__main__.py"})
    for folder, count in collections.Counter(path.parent for path in files).items():
        if count > MOST_FILES:
            found[f"{relative(folder)}/"] = count
    return found


def test_what_is_large_is_listed_with_its_size():
    found = large()
    rows = listed()
    assert sorted(found) == sorted(name for names, _ in rows for name in names)
    for names, size in rows:
        sizes = sorted(found[name] for name in names)
        unit = "files" if names[0].endswith("/") else "lines"
        least = f"{sizes[0]} to " if sizes[0] != sizes[-1] else ""
        assert size == f"{least}{sizes[-1]} {unit}", names


@pytest.mark.parametrize("lines", [MOST_FUNCTION_LINES, MOST_FUNCTION_LINES + 1])
def test_a_long_function_is_found(lines):
    body = "  x();\n" * (lines - 2)
    python = "def f():\n" + "    x()\n" * (lines - 1)
    wrapped = "void g(int a,\n       int b) {\n" + "  x();\n" * (lines - 3) + "}\n"
    native = f"void h();\nint one() {{ return 1; }}\nvoid A::f(int a) {{\n{body}}}\n{wrapped}"
    expected = lines if lines > MOST_FUNCTION_LINES else None
    assert long_functions(PROJECT_ROOT / "a.py", python).get("f") == expected
    found = long_functions(PROJECT_ROOT / "a.cpp", native)
    assert (found.get("f"), found.get("g"), len(found)) == (expected, expected, 2 * bool(expected))
