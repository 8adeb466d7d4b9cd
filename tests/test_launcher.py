# SPDX-License-Identifier: GPL-2.0-or-later
"""The launcher on a miniature checkout: the real script, venv and pip, with nothing to download.

The miniature has the real native sources to take stock of, a build backend that makes a wheel
of one script instead of compiling them, and a package index of one package in a folder.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOBODY = 65534
TIMEOUT_S = 120

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
dependencies = ["needed"]
optional-dependencies.test = ["tested"]
optional-dependencies.cluster = ["clustered"]
optional-dependencies.report = ["reported"]
optional-dependencies.plot = ["plotted"]
optional-dependencies.docs = ["built"]
optional-dependencies.fuzz = ["fuzzed"]
"""
PACKAGES = ("needed", "tested", "clustered", "fuzzed", "reported", "plotted", "built")

BACKEND = """
import pathlib
import zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    assert not pathlib.Path("native/broken").exists(), "native/broken does not compile"
    for done in range(9):
        print(f"[{done}/8] Building CXX object", flush=True)
    pathlib.Path("build").mkdir(exist_ok=True)
    pathlib.Path("build/settings").write_text(repr(config_settings))
    with zipfile.ZipFile(pathlib.Path(wheel_directory, "mini-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("mini.py", "import sys\\ndef main(): print('mini', *sys.argv[1:])")
        for name, text in {
            "METADATA": "Metadata-Version: 2.1\\nName: mini\\nVersion: 1",
            "WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any",
            "entry_points.txt": "[console_scripts]\\nlab = mini:main",
            "RECORD": "",
        }.items():
            wheel.writestr(f"mini-1.dist-info/{name}", text)
    return "mini-1-py3-none-any.whl"
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes to another user: needs root")


@contextlib.contextmanager
def miniature():
    """A checkout that nobody has started the launcher in yet."""
    top = Path(tempfile.mkdtemp(prefix="softroce-lab-launcher-"))
    try:
        top.chmod(0o755)
        for name in ("lab", "debian-packages.txt", "CMakeLists.txt"):
            shutil.copy(ROOT / name, top)
        for name in ("native", "xdp"):
            shutil.copytree(ROOT / name, top / name)
        (top / "softroce_lab/cli").mkdir(parents=True)
        for name in ("__init__.py", "cli/help.txt"):
            shutil.copy(ROOT / "softroce_lab" / name, top / "softroce_lab" / name)
        (top / "pyproject.toml").write_text(PYPROJECT)
        (top / "backend.py").write_text(BACKEND)
        (top / "index").mkdir()
        for name in PACKAGES:
            write_package(top / "index", name)
        yield top
    finally:
        shutil.rmtree(top)


def write_package(folder, name):
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        information = f"{name}-1.dist-info"
        wheel.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1"
        )
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
        wheel.writestr(f"{information}/RECORD", "")


def installed(top):
    """The packages of the miniature index that its virtual environment has."""
    folders = top.glob(".venv/lib/python3*/site-packages/*.dist-info")
    return {folder.name.partition("-")[0] for folder in folders} & set(PACKAGES)


@contextlib.contextmanager
def whole_checkout():
    """A copy of this checkout that nobody has started the launcher in yet."""
    made = shutil.ignore_patterns(".git", ".venv", ".lab-prepared", "build", "runs", "*.so")
    with tempfile.TemporaryDirectory(prefix="softroce-lab-launcher-") as parent:
        yield Path(shutil.copytree(ROOT, Path(parent, "copy"), ignore=made))


def options(**environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "LAB"))}
    return {
        "env": clean | {"LAB_NO_APT": "1"} | environment,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }


def of_miniature(top, **environment):
    return options(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(top / "index"), **environment)


def start(top, *arguments, user=None, timeout=TIMEOUT_S, **environment):
    index = of_miniature if (top / "index").exists() else lambda _, **given: options(**given)
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run(
        [top / "lab", *arguments], **index(top, **environment), **identity, timeout=timeout
    )


ALL = ["debian packages", "environment", "python packages", "native module"]


def steps(result):
    """The steps that a start went through."""
    return re.findall(r"^lab: ([a-z ]+) \.\.\. ", result.stderr, re.MULTILINE)


@pytest.fixture(scope="module")
def first_starts():
    """A checkout and the outcome of two first starts at once."""
    with miniature() as top:
        launched = [subprocess.Popen([top / "lab", "up"], **of_miniature(top)) for _ in range(2)]
        results = [
            subprocess.CompletedProcess(p.args, p.wait(), *p.communicate(timeout=TIMEOUT_S))
            for p in launched
        ]
        yield top, results


@pytest.fixture
def prepared(first_starts):
    return first_starts[0]


def test_of_two_first_starts_one_prepares_and_both_run(first_starts):
    _, results = first_starts
    assert [(result.returncode, result.stdout) for result in results] == [(0, "mini up\n")] * 2
    assert sorted(steps(result) for result in results) == [[], ALL]
    assert sum("waiting for it" in result.stderr for result in results) == 1
    output = "".join(result.stderr for result in results)
    lines = [line for line in output.splitlines() if "waiting" not in line]
    assert len(lines) == 4
    assert [line for line in lines if not re.search(r"\d+ s$", line)] == []
    assert re.search(r"native module \.\.\. 25 %, 50 %, 75 %, \d+ s$", lines[-1])


def test_the_next_start_says_nothing_and_passes_the_arguments_on(prepared, tmp_path):
    result = start(prepared, "up", "a b.yaml", "--", "-x")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "mini up a b.yaml -- -x\n"
    (tmp_path / "lab").symlink_to(prepared / "lab")
    assert start(tmp_path, "x").stdout == "mini x\n"


@pytest.mark.full("preparation")
def test_a_first_start_takes_under_five_minutes(full):
    """A first start in a checkout; in full with all downloads and the native module."""
    with whole_checkout() if full else miniature() as top:
        began = time.monotonic()
        result = start(top, "run", "--list", timeout=300)
        print(result.stderr, f"{time.monotonic() - began:.0f} s")
        assert result.returncode == 0, result.stderr
        assert steps(result) == ALL
        assert time.monotonic() - began < 300


@needs_root
def test_who_boots_kernel_hosts_or_tests_has_more_steps_once(prepared):
    for extra in ("guest_packages", "test_packages"):
        (prepared / ".lab-prepared" / extra).unlink(missing_ok=True)
    wanted = {
        "demo": [], "kernel-host": ["guest packages"], "test": ["test packages"], "test ": []
    }  # fmt: skip
    for verb, more in wanted.items():
        result = start(prepared, verb.strip())
        assert (result.returncode, result.stdout) == (0, f"mini {verb.strip()}\n")
        assert [each for each in steps(result) if each.endswith("packages")] == more
    promised = start(prepared, "test", LAB_NO_APT="2")  # by somebody else
    assert "guest packages" in steps(promised)
    assert steps(start(prepared)) == ["debian packages"]  # which the promise of now is about


def test_packages_of_tests_fuzzing_and_clusters_come_with_what_uses_them():
    with miniature() as top:
        for arguments, packages in [
            (["up"], {"needed"}),
            (["run", "reach", "--scheduler", "tcp://h:1"], {"clustered"}),
            (["results", "report", "latest"], {"reported"}),
            (["results", "plot", "latest", "-o", "a.pdf"], {"plotted"}),
            (["test", "--full", "cycles"], {"tested", "built"}),
            (["test", "--all"], {"fuzzed"}),
        ]:
            before = installed(top)
            result = start(top, *arguments)
            assert (result.returncode, result.stdout) == (0, f"mini {' '.join(arguments)}\n")
            assert installed(top) - before == packages
        assert start(top, "test", "--full", "fuzz-live").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "uses_verbs"),
    [
        ("run own.yaml", True), ("run ./own.yaml -q", True), ("run program", True),
        ("run other.yaml", False), ("run incast", False), ("run none.yaml", False),
        ("exec --verbs h1 -- ls", True), ("exec h1 -- ls --verbs", False),
        ("exec --shift h1 -- ls", True), ("exec --transport irn h1 -- ls", True),
        ("exec --transport=irn h1 -- ls", True), ("exec h1 -- ls --transport irn", False),
        ("perf write_bw h1 h2", True), ("perf --help", False),
    ],
)  # fmt: skip
def test_who_runs_programs_of_verbs_gets_their_library(tmp_path, arguments, uses_verbs):
    (tmp_path / "own.yaml").write_text("workload:\n  kind: program\n")
    (tmp_path / "other.yaml").write_text("workload: {kind: incast}\n")
    text = (ROOT / "lab").read_text()
    function = re.search(r"^steps\(\) \{\n.*?^\}\n", text, re.DOTALL | re.MULTILINE)[0]
    script = f'top={ROOT}\nhas_packages() {{ :; }}\nis_root() {{ :; }}\n{function}steps "$@"'
    argv = ["sh", "-c", script, "sh", *arguments.split()]
    done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ("verbs_library" in done.stdout.split()) == uses_verbs


WITHOUT_PREPARATION = {
    ("--version",): (0, "softroce_lab 0."),
    ("--help",): (0, "Usage: lab [OPTIONS] COMMAND"),
    (): (2, "Usage: lab [OPTIONS] COMMAND"),
    ("demo", "--help"): (0, "Usage: lab demo "),
    ("fault", "set", "--help"): (0, "Usage: lab fault set "),
}


def test_help_and_version_need_no_preparation():
    with miniature() as top:
        for arguments, (code, text) in WITHOUT_PREPARATION.items():
            result = start(top, *arguments, PATH="/usr/bin:/bin")
            assert (result.returncode, result.stderr) == (code, "")
            assert result.stdout.startswith(text)
        result = start(top, "nosuch", "--help")
        assert (result.returncode, result.stdout) == (2, "")
        assert "'nosuch'" in result.stderr
        shell = {"COMP_WORDS": "lab\nst", "COMP_CWORD": "1"}  # which completes a word
        result = start(top, _LAB_COMPLETE="complete_bash", **shell)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        assert not (top / ".lab-prepared").exists()
        reader = f"{top / 'lab'} --help | head -3"
        shown = subprocess.run(reader, shell=True, **of_miniature(top), timeout=TIMEOUT_S)  # noqa: S602
        assert (shown.stderr, len(shown.stdout.splitlines())) == ("", 3)
        assert steps(start(top, "exec", "--", "--help")) == ALL  # that help is ls's


SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"
SEEN = "import sys, bcc, needed; print(bcc.__name__, needed.__file__)"


@needs_root
def test_of_the_systems_packages_only_bcc_is_visible(tmp_path):
    """On a machine with an old release of a package that the lab needs, as Debian's numpy 1.24."""
    system = tmp_path / "dist-packages"
    for name in ("bcc", "needed", "other"):
        (system / name).mkdir(parents=True)
        (system / name / "__init__.py").write_text("")
    (system / "needed-0.9.dist-info").mkdir()
    (system / "needed-0.9.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: needed\nVersion: 0.9"
    )
    with miniature() as top:

        def on_that_machine(*words):
            mounted = f'mount --bind {system} {SYSTEM_PACKAGES} && exec "$@"'
            machine = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounted, "sh"]
            return subprocess.run([*machine, *words], **of_miniature(top), timeout=TIMEOUT_S)

        started = on_that_machine(top / "lab", "up")
        assert (started.returncode, started.stdout) == (0, "mini up\n"), started.stderr
        assert installed(top) == {"needed"}
        seen = on_that_machine(top / ".venv/bin/python", "-c", SEEN)
        assert seen.stdout.split()[0] == "bcc", seen.stderr
        assert Path(seen.stdout.split()[1]).is_relative_to(top / ".venv")
        assert on_that_machine(top / ".venv/bin/python", "-c", "import other").returncode == 1


def test_an_edited_native_source_repeats_the_last_step_only(prepared):
    (prepared / "native/new.cpp").write_text("int x;")
    assert steps(start(prepared)) == ["native module"]
    (prepared / "native/new.cpp").unlink()
    assert steps(start(prepared)) == ["native module"]
    with_bytecode = prepared / "native/verbs/__pycache__"  # of a generator, which the build imports
    with_bytecode.mkdir(exist_ok=True)
    (with_bytecode / "new.cpython-311.pyc").write_text("")
    assert steps(start(prepared)) == []


def test_a_failed_step_says_why_and_what_to_do_and_is_gone_on_with(prepared):
    broken = prepared / "native/broken"
    broken.write_text("")
    for _ in range(2):
        result = start(prepared)
        assert (result.returncode, result.stdout, steps(result)) == (3, "", ["native module"])
        assert "native/broken does not compile" in result.stderr
        assert f"{prepared}/.lab-prepared/native_module.log" in result.stderr
        assert "start ./lab again" in result.stderr
    broken.unlink()
    assert steps(start(prepared)) == ["native module"]


def test_an_environment_that_was_deleted_is_made_again(prepared):
    shutil.rmtree(prepared / ".venv")
    result = start(prepared, "up", "again")
    assert (steps(result), result.stdout) == (ALL[1:], "mini up again\n")


def test_an_interrupted_preparation_goes_on(prepared):
    shutil.rmtree(prepared / ".venv")
    command = [prepared / "lab", "up"]
    with subprocess.Popen(command, start_new_session=True, **of_miniature(prepared)) as launched:
        deadline = time.monotonic() + TIMEOUT_S
        while not (prepared / ".venv/pyvenv.cfg").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(launched.pid, signal.SIGINT)
        _, output = launched.communicate(timeout=TIMEOUT_S)
    assert launched.returncode == 130
    assert "interrupted" in output
    result = start(prepared, "up", "after")
    assert (steps(result), result.stdout) == (ALL[1:], "mini up after\n")


@needs_root
def test_under_sudo_the_checkout_stays_its_owners():
    with miniature() as top:
        for path in [top, *top.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        with tempfile.TemporaryDirectory() as home:
            assert start(top, "up", HOME=home).stdout == "mini up\n"
            assert {path.lstat().st_uid for path in [top, *top.rglob("*")]} == {NOBODY}
        assert start(top, "--version", user=NOBODY, HOME="/").stdout == "mini --version\n"


@contextlib.contextmanager
def lacking_a_package():
    """A checkout of nobody's that wants a Debian package which this machine has not."""
    with miniature() as top:
        packages = top / "debian-packages.txt"
        packages.write_text(packages.read_text().replace(": bubblewrap", ": softroce-lab-no-such"))
        for path in [top, *top.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        yield top


@needs_root
def test_not_root_with_packages_missing_gets_the_virtual_clock():
    with lacking_a_package() as top:
        rootless = {"user": NOBODY, "LAB_NO_APT": "", "HOME": "/"}
        result = start(top, "run", "x", **rootless)
        assert (result.returncode, result.stdout) == (0, "mini run x\n"), result.stderr
        assert "without root and softroce-lab-no-such" in result.stderr
        assert "for the virtual clock alone" in result.stderr
        assert steps(result) == ALL[1:]
        assert "'cmake.define.SOFTROCE_LIVE': 'AUTO'" in (top / "build/settings").read_text()
        result = start(top, "again", **rootless)
        assert (result.stdout, result.stderr) == ("mini again\n", "")
        with_packages = start(top, "demo")  # as root; LAB_NO_APT promises that they are there
        assert steps(with_packages) == [ALL[0]]
        result = start(top, "again", **rootless)
        assert (result.stdout, result.stderr) == ("mini again\n", "")


@needs_root
def test_not_root_without_a_compiler_says_how_to_go_on():
    with lacking_a_package() as top:
        programs = top / "programs"
        programs.mkdir()
        for program in Path("/usr/bin").iterdir():
            if program.name != "c++":
                (programs / program.name).symlink_to(program)
        path = {"PATH": str(programs), "LAB_NO_APT": ""}
        result = start(top, "demo", "--json", user=NOBODY, **path)
        assert (result.returncode, result.stdout) == (3, "")
        assert "softroce-lab-no-such" in result.stderr
        assert "sudo ./lab demo --json" in result.stderr
        assert "g++ python3-dev python3-venv" in result.stderr
        assert not (top / ".venv").exists()


@needs_root
@pytest.mark.parametrize("begun", [False, True])
def test_not_root_in_a_checkout_that_is_not_ones_own_says_how_to_go_on(begun):
    with miniature() as top:
        if begun:
            (top / ".lab-prepared").mkdir()
        result = start(top, "demo", user=NOBODY)
        assert result.returncode == 3
        assert result.stderr.startswith(f"lab: you may not write to {top}.\n")
        assert "sudo ./lab demo" in result.stderr


def test_another_distribution_is_told_the_packages(tmp_path):
    """Without apt and dpkg on PATH, as on a distribution that has neither."""
    for directory in ("/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            if not program.name.startswith(("apt", "dpkg")):
                with contextlib.suppress(FileExistsError):
                    (tmp_path / program.name).symlink_to(program)
    with miniature() as top:
        result = start(top, "demo", PATH=str(tmp_path), LAB_NO_APT="")
        assert result.returncode == 3
        assert "python3-bpfcc" in result.stderr
        assert "LAB_NO_APT=1 ./lab demo" in result.stderr
        assert not (top / ".lab-prepared").exists()
