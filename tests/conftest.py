# SPDX-License-Identifier: GPL-2.0-or-later
"""Short and long forms of one test.

A test that has a long form is marked `@pytest.mark.full("name")` and takes the fixture `full`,
which is true when that long form was asked for with `--full name` (`lab test --full name`):

    @pytest.mark.full("fifty-demos")
    def test_demos_leave_nothing_behind(full: bool) -> None:
        for seed in range(50 if full else 2): ...

`--quick` leaves out what tests/slow.txt lists: `lab test` gives it, `lab test --all` does not.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import json
import os
import resource
import signal
import subprocess
import sys
import time

import hypothesis
import pytest

from softroce_lab.cli import typed
from tests import session, slow

NOBODY = 65534
WORKERS_END_S = 20  # in which xdist's processes have ended; then it kills them

# Hints name the command as it was typed; that of who started the tests is not that of a test.
os.environ.pop(typed.VARIABLE, None)

# No test fails for a slow machine: by default hypothesis fails an example that takes 200 ms.
hypothesis.settings.register_profile("softroce_lab", deadline=None)
hypothesis.settings.load_profile("softroce_lab")


def pytest_addoption(parser):
    group = parser.getgroup("softroce_lab")
    group.addoption("--full", metavar="NAME", help="run only the line NAME, in its long form")
    group.addoption("--list-full", action="store_true", help="list the lines with a long form")
    group.addoption("--quick", action="store_true", help="leave out what tests/slow.txt lists")
    group.addoption("--durations-to", metavar="FILE", help="add a line to FILE for each test: "
                    "its name, its seconds, its seconds of processor time")  # fmt: skip
    group.addoption("--case-seed", metavar="N", type=int, help="replay one case of a random test")


def pytest_configure(config):
    config.addinivalue_line("markers", "full(name): has a long form, run by `--full name`")
    # What a shell starts in the background ignores SIGINT, what nohup does SIGHUP, and so would all
    # that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.add_cleanup(session.enter())
    if config.pluginmanager.hasplugin("dsession"):
        from xdist import workermanage

        workermanage.NodeManager.EXIT_TIMEOUT = WORKERS_END_S
    # hypothesis leaves one, which reaches its modules, their loader, which is pytest's, and so this
    # config and session: a process that ends would not free them, nor what tests keep there.
    atexit.register(gc.callbacks.clear)


def pytest_keyboard_interrupt():
    """A process of several takes its labs down, though execnet interrupts it again after 5 s."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def line_of(item):
    """The name of a test's long form, or None."""
    marker = item.get_closest_marker("full")
    return marker.args[0] if marker else None


def lines(items):
    """Name of every long form -> first line of its test's docstring; tests may share a name."""
    functions = {line: item.function for item in items if (line := line_of(item))}
    return {
        line: (inspect.getdoc(function) or function.__name__).partition("\n")[0]
        for line, function in sorted(functions.items())
    }


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--full")
    if wanted is None:
        if config.getoption("--quick"):
            leave_out(config, items, slow.listed())
        return
    known = lines(items)
    if wanted not in known:
        names = ", ".join(known) or "none"
        raise pytest.UsageError(f"no line is called {wanted!r}; those with a long form: {names}")
    config.hook.pytest_deselected(items=[item for item in items if line_of(item) != wanted])
    items[:] = [item for item in items if line_of(item) == wanted]


def leave_out(config, items, functions):
    left_out = [item for item in items if slow.function_of(item.nodeid) in functions]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if slow.function_of(item.nodeid) not in functions]


def cpu_s():
    """Processor time of this process and of the processes that it waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """With --durations-to, record how long a test took, its fixtures included."""
    began_s, began_cpu_s = time.monotonic(), cpu_s()
    result = yield
    if (path := item.config.getoption("--durations-to")) is not None:
        took_s = [round(time.monotonic() - began_s, 6), round(cpu_s() - began_cpu_s, 6)]
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, *took_s]) + "\n")
    return result


def pytest_runtestloop(session):
    """With --list-full, list instead of running."""
    if not session.config.getoption("--list-full"):
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for line, summary in lines(session.items).items():
        reporter.write_line(f"{line:24} {summary}")
    return True


@pytest.fixture
def full(request):
    """Whether the long form of this test was asked for."""
    line = line_of(request.node)
    assert line is not None, "a test that takes `full` is marked with pytest.mark.full(name)"
    return request.config.getoption("--full") == line


@pytest.fixture
def nobody():
    """A user without rights who can run this Python."""
    try:
        subprocess.run([sys.executable, "-c", ""], user=NOBODY, cwd="/", check=True)
    except PermissionError:
        pytest.skip("the checkout lies in a folder that is closed to other users")
    return NOBODY
