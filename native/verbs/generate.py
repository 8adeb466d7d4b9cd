# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a library's version script for the linker, and its stubs: generate.py LIST MAP STUBS.

LIST is symbols.txt, whose head explains it. The standard library only: CMake runs it.
"""

import re
import sys
from pathlib import Path

PRIVATE = "IBVERBS_PRIVATE_"
STUBS = {
    "int": "int {name}(void) {{ return EOPNOTSUPP; }}",
    "pointer": "void *{name}(void) {{ return errno = EOPNOTSUPP, (void *)0; }}",
    "void": "void {name}(void) {{}}",
    "failing": "long {name}(void) {{ return errno = EOPNOTSUPP, -1; }}",
    "zero": "int {name}(void) {{ return 0; }}",
    "old": "void *{alias}(void) {{ return errno = EOPNOTSUPP, (void *)0; }}\n"
    '__asm__(".symver {alias}, {name}@{node}");',
}
HEAD = "/* Made by native/verbs/generate.py of a symbols.txt. */\n"


def read(path: str | Path) -> list[tuple[str, str, str]]:
    """(symbol, node, kind) of each line. ValueError with its place."""
    rows = []
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or words[2] not in {*STUBS, "here"}:
            raise ValueError(f"{path}:{number}: a symbol, its node and its kind, not {line!r}")
        rows.append((words[0], words[1], words[2]))
    return rows


def age(node: str) -> tuple[bool, list[int]]:
    """Nodes in the order in which rdma-core added them; the drivers' one at last."""
    return node.startswith(PRIVATE), [int(word) for word in re.findall(r"\d+", node)]


def version_script(rows: list[tuple[str, str, str]]) -> str:
    """Each node inherits the one before it; what is in none is local."""
    lines: list[str] = []
    before = ""
    nodes = sorted({node for _, node, _ in rows}, key=age)
    last = nodes[-1]
    for node in nodes:
        names = sorted(name for name, at, kind in rows if at == node and kind != "old")
        lines += [f"{node} {{", "  global:", *(f"    {name};" for name in names)]
        private = node.startswith(PRIVATE)
        lines += ["  local:", "    *;"] if node == last else []
        lines += ["};" if private or not before else f"}} {before};", ""]
        before = before if private else node
    return "\n".join(lines)


def stubs(rows: list[tuple[str, str, str]]) -> str:
    """C source."""
    made = [
        STUBS[kind].format(name=name, node=node, alias=f"softroce_old_{name}")
        for name, node, kind in rows
        if kind != "here"
    ]
    return "\n".join([HEAD, "#include <errno.h>", "", *made, ""])


if __name__ == "__main__":
    table = read(sys.argv[1])
    Path(sys.argv[2]).write_text(version_script(table), "utf-8")
    Path(sys.argv[3]).write_text(stubs(table), "utf-8")
