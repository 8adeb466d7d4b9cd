# SPDX-License-Identifier: GPL-2.0-or-later
"""The one-way order of the rooms, and what the pure ones may not touch.

Imports go down only, and never in a circle. `transports/`, `workloads/` and
the native engine are handed time, randomness and packets; they take none themselves.
"""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "softroce_lab"

STOREYS = (
    {"cli"},
    {"learn"},
    {"results"},
    {"check"},
    {"experiment"},
    {"workloads"},
    {"transports"},
    {"programs"},
    {"verbs"},
    {"fabric", "sim"},
    {"telemetry"},
    {"dissect"},
    {"topology"},
    {"faults"},
    {"plan"},
    {"inputs"},
    # Not rooms, but what every room may use: `softroce_lab` itself holds the version.
    {"units", "errors", "paths", "statistics", "junit", "writable", "structs", "_native", PACKAGE},
)
# Rooms of one storey that know nothing of each other: either clock works without the other one.
APART = ({"fabric", "sim"},)
STOREY = {room: number for number, rooms in enumerate(STOREYS) for room in rooms}

PURE_ROOMS = ("transports", "workloads")
IMPURE_PARTS = {"sdr", "shift"}  # of transports: they run beside verbs, with a clock
IMPURE_MODULES = {
    "asyncio", "datetime", "multiprocessing", "os", "random", "secrets", "select", "selectors",
    "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
# Types of numpy.random that a caller may hand in, with a seed of the caller's.
HANDED_IN = {"Generator", "BitGenerator"}

IMPURE_NATIVE = re.compile(
    r"""
    \bclock_(gettime|nanosleep)\b | \bgettimeofday\b | \bstd::chrono\b | \b__?rdtscp?\b
    | \b(nano|u)?sleep\s*\( | (?<![\w.>])time\s*\( | (?<![\w.>])clock\s*\(
    | \bstd::random_device\b | (?<![\w.>])s?rand(om)?(_r)?\s*\( | \bgetrandom\b | \bgetentropy\b
    | (?<![\w.>])(socket|sendto|recvfrom|send(m?msg)|recv(m?msg)|epoll_wait)\s*\( | \bgetenv\b
    | \#\s*include\s*<(chrono|ctime|time\.h|sys/time\.h|sys/socket\.h|random|thread|unistd\.h)>
    """,
    re.VERBOSE,
)


def imports(source: str, module: str, is_package: bool = False) -> Iterator[str]:
    """Absolute dotted names of all that a module imports, wherever in it and however spelled."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def room_of(name: str) -> str | None:
    """The room that a dotted name of the package is in; None for somebody else's."""
    head, *rest = name.split(".")
    if head != PACKAGE:
        return None
    return rest[0] if rest and rest[0] in STOREY else unknown(rest) or PACKAGE


def unknown(rest: list[str]) -> str | None:
    """A part of the package that nobody gave a storey, or None for a name of `__init__`."""
    here = ROOT / PACKAGE / rest[0] if rest else None
    return rest[0] if here and (here.is_dir() or here.with_suffix(".py").is_file()) else None


def misplaced(source: str, module: str, is_package: bool = False) -> list[str]:
    """What a module imports that its room may not know."""
    room = room_of(module)
    wrong = []
    for name in imports(source, module, is_package):
        target = room_of(name)
        if target is None or target == room:
            pass
        elif STOREY.get(target, -1) < STOREY[room] or {room, target} in APART:
            wrong.append(f"{module} imports {name}")
        if name.split(".")[0] == "scapy" and room != "dissect":
            wrong.append(f"{module} imports {name}: scapy lives in dissect/")
        if name.split(".")[0] in ("benchmarks", "tests"):
            wrong.append(f"{module} imports {name}: that is not installed")
    return wrong


def impure(source: str, module: str) -> list[str]:
    """Where a pure module reads a clock, a socket, the system or global randomness."""
    wrong = [
        f"{module} imports {name}"
        for name in imports(source, module)
        if name.split(".")[0] in IMPURE_MODULES
        or (name.startswith("numpy.random.") and name.split(".")[2] not in HANDED_IN)
        or name == "numpy.random"
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            spelled = ast.unparse(node)
            if re.fullmatch(r"(np|numpy)\.random\.\w+", spelled) and node.attr not in HANDED_IN:
                wrong.append(f"{module}:{node.lineno} uses {spelled}")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"open", "__import__"}:
            wrong.append(f"{module}:{node.lineno} calls {ast.unparse(node.func)}")
    return wrong


def impure_native(source: str) -> list[str]:
    """Where C++ text outside its comments and strings reads a clock, a socket or randomness."""
    blank = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\""
    code = re.sub(blank, lambda found: "\n" * found[0].count("\n"), source, flags=re.DOTALL)
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(code.splitlines(), 1)
        if IMPURE_NATIVE.search(line)
    ]


def modules(below: str = "") -> list[tuple[str, Path]]:
    """Dotted name and path of every module of the package, or of one room."""
    paths = sorted((ROOT / PACKAGE / below).rglob("*.py"))
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts), path) for path in paths]


def dotted(name: str) -> tuple[str, bool]:
    """The module's own name, and whether it is a package."""
    return name.removesuffix(".__init__"), name.endswith(".__init__")


def first_circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one import circle, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def own_imports() -> dict[str, set[str]]:
    """Every module of the package -> those of the package that it names, for types too."""
    names = {dotted(name)[0] for name, _ in modules()}
    graph = {}
    for name, path in modules():
        module, is_package = dotted(name)
        found = set(imports(path.read_text(), module, is_package))
        # `from package.module import name` names the module, or a module by that name in it.
        found |= {target.rpartition(".")[0] for target in found - names}
        graph[module] = (found & names) - {module}
    return graph


def test_every_part_of_the_package_has_a_storey():
    assert {room_of(dotted(name)[0]) for name, _ in modules()} <= STOREY.keys()


@pytest.mark.parametrize(("name", "path"), [pytest.param(*m, id=m[0]) for m in modules()])
def test_a_module_imports_downwards_only(name, path):
    module, is_package = dotted(name)
    assert misplaced(path.read_text(), module, is_package) == []


def test_no_modules_import_each_other_in_a_circle():
    assert first_circle(own_imports()) == []


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param(*m, id=m[0])
        for room in PURE_ROOMS
        for m in modules(room)
        if m[0].split(".")[2] not in IMPURE_PARTS
    ],
)
def test_a_pure_module_takes_no_time_and_no_randomness(name, path):
    assert impure(path.read_text(), dotted(name)[0]) == []


@pytest.mark.parametrize("room", ["engine", "transport", "capture", "erasure", "sim"])
def test_a_pure_native_room_takes_no_time_and_no_randomness(room):
    sources = [p for p in (ROOT / "native" / room).rglob("*") if p.suffix in {".cpp", ".hpp", ".h"}]
    assert sources
    found = {str(p.relative_to(ROOT)): impure_native(p.read_text()) for p in sources}
    assert {path: lines for path, lines in found.items() if lines} == {}


# The checker itself can fail.


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("softroce_lab.plan.plan", "import softroce_lab.fabric.net.netns"),
        ("softroce_lab.plan.plan", "from softroce_lab import verbs"),
        ("softroce_lab.faults.resolve", "from softroce_lab import topology"),
        ("softroce_lab.plan.locate", "from softroce_lab.faults.targets import QUOTE"),
        ("softroce_lab.verbs.qp", "from ..transports import csa_ud"),
        ("softroce_lab.transports.base", "def f():\n    from softroce_lab.cli.app import main"),
        ("softroce_lab.units", "from softroce_lab.plan.plan import Plan"),
        ("softroce_lab.telemetry.pcapng", "if TYPE_CHECKING:\n    import softroce_lab.check"),
        ("softroce_lab.fabric.up", "from scapy.packet import Packet"),
        ("softroce_lab.fabric.up", "import scapy.all"),
        ("softroce_lab.fabric.up", "from benchmarks.traffic import BareTraffic"),
        ("softroce_lab.fabric.lab", "from softroce_lab.programs.kernel_host import guest"),
        ("softroce_lab.fabric.up", "from softroce_lab.sim import clock"),
        ("softroce_lab.fabric.up", "import softroce_lab.sim.clock"),
    ],
)
def test_an_upward_import_is_found(module, source):
    assert len(misplaced(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("softroce_lab.cli.up", "from softroce_lab.fabric import ledger\nimport time"),
        ("softroce_lab.dissect.layers", "from scapy.packet import Packet"),
        ("softroce_lab.transports.csa_ud", "from . import registry\nfrom .registry import find"),
        ("softroce_lab.cli.app", "from softroce_lab import __version__"),
        ("softroce_lab.topology.resolve", "from softroce_lab.faults import resolve"),
        ("softroce_lab.fabric.up", "from softroce_lab.fabric import down"),
    ],
)
def test_a_downward_import_is_fine(module, source):
    assert misplaced(source, module) == []


def test_a_relative_import_of_a_package_starts_at_the_package():
    assert list(imports("from . import a\nfrom .. import b", "softroce_lab.verbs", True)) == [
        "softroce_lab.verbs.a",
        "softroce_lab.b",
    ]


def test_an_import_for_types_alone_counts():
    source = "if TYPE_CHECKING:\n    import softroce_lab.a\nimport softroce_lab.b"
    assert list(imports(source, "softroce_lab.x")) == ["softroce_lab.b", "softroce_lab.a"]


def test_a_circle_is_found():
    assert set(first_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    assert first_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic_ns",
        "import os.path",
        "import random",
        "def f():\n    import socket",
        "import numpy.random",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\nx = np.random.default_rng()",
        "import numpy\nnumpy.random.seed(1)",
        "open('/proc/uptime')",
        "__import__('time')",
    ],
)
def test_impurity_is_found(source):
    assert impure(source, "softroce_lab.transports.x") != []


@pytest.mark.parametrize(
    "source",
    [
        "import dataclasses\nimport numpy as np\ndef f(stream: np.random.Generator): pass",
        "from numpy.random import Generator",
        "def f(now): return now.time",
        "from softroce_lab.transports import timers",
    ],
)
def test_purity_is_not_refused(source):
    assert impure(source, "softroce_lab.workloads.x") == []


@pytest.mark.parametrize(
    "line",
    [
        "clock_gettime(CLOCK_MONOTONIC, &ts);",
        "auto t = std::chrono::steady_clock::now();",
        "#include <ctime>",
        "# include <random>",
        "int fd = socket(AF_XDP, SOCK_RAW, 0);",
        "int fd = ::socket(AF_XDP, SOCK_RAW, 0);",
        "x = rand();",
        "x = std::rand();",
        "std::random_device seed;",
        "auto t = time(nullptr);",
        "auto t = std::time(nullptr);",
        "usleep(5);",
        "::sendmsg(fd, &message, 0);",
    ],
)
def test_native_impurity_is_found(line):
    assert impure_native(f"void f() {{\n  {line}\n}}\n") == [f"2: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        "// std::chrono would break determinism",
        "/* socket(\n time( */",
        'throw Error("time(ns) is negative");',
        "Time next_timeout() const;",
        "handle_timeout(now);",
        "auto due = wheel.time(slot);",
        "operand(x);",
        "post_recv(wr);",
        "std::vector<WorkCompletion> poll(std::size_t most) {",
    ],
)
def test_native_purity_is_not_refused(line):
    assert impure_native(line) == []
