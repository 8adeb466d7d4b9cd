# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy in a user's file: where it is looked for, and what is said of a wrong one."""

import hashlib
import os
import posix
import subprocess
import sys

import pytest

from softroce_lab.errors import ExitCode, UserError
from softroce_lab.experiment import spec
from softroce_lab.experiment.transports import policy_call, policy_file
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.paths import PROJECT_ROOT

MINE = """
from softroce_lab.transports.options import Option
from softroce_lab.transports.policy import MessagePolicy as Base

class Mine(Base):
    options = (Option("rto", 3, "in SRTT", least=1, most=100),)

class Other(Base):
    pass

def helper():
    pass
"""
EXPERIMENT = """
name: t
topology: leaf-spine
transports:
  - {entry}
  - ud_rto
workload: {{kind: point-to-point, bytes: 1MiB}}
"""


def _with(line):
    """The policy with a line more."""
    return MINE.replace("    options = (", f"    {line}\n    options = (", 1)


def _with_method(*of):
    """With class methods: of each the name, the parameters, and what it returns."""
    methods = zip(of[::3], of[1::3], of[2::3], strict=True)
    lines = [f"@classmethod\n    def {n}(cls, {p}):\n        return {r}" for n, p, r in methods]
    return _with("\n    ".join(lines))


def experiment(folder, entry, mine=MINE):
    if mine is not None:
        (folder / "mine.py").write_text(mine)
    file = folder / "x.yaml"
    file.write_text(EXPERIMENT.format(entry=entry))
    return spec.load(file)


def test_a_file_beside_the_experiment(tmp_path):
    wanted = "{policy: ./mine.py:Mine, label: mine, options: {rto: 4}}"
    mine, plain = experiment(tmp_path, wanted).transports
    assert (mine.label, mine.name, mine.options) == ("mine", "Mine", {"rto": 4})
    assert mine.file == str(tmp_path / "mine.py")
    assert mine.sha256 == hashlib.sha256(MINE.encode()).hexdigest()
    assert mine.entry.policy.__name__ == "Mine"
    assert plain == Transport.named("ud_rto")


def test_on_the_command_line_it_is_relative_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    chosen = spec.with_transports(spec.load("incast"), ["mine.py:Mine", "rc"]).transports
    assert [each.label for each in chosen] == ["Mine", "rc"]
    assert chosen[0].file == str(tmp_path / "mine.py")


def test_two_files_with_a_class_of_one_name_are_an_error(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(MINE)
    names = [f"{tmp_path}/{name}:Mine" for name in ("a.py", "b.py")]
    with pytest.raises(UserError, match="two transports are called 'Mine'") as caught:
        spec.with_transports(spec.load("incast"), names)
    assert caught.value.hint == f"give one a label: --transport mine={names[1]}"
    mine = caught.value.hint.partition("--transport ")[2]
    chosen = spec.with_transports(spec.load("incast"), [names[0], mine, "plain=rc"]).transports
    assert [each.label for each in chosen] == ["Mine", "mine", "plain"]
    assert [each.name for each in chosen] == ["Mine", "Mine", "rc"]
    assert chosen[1].reference == mine


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("./none.py:Mine", "x.yaml:5:5: {}/none.py: cannot be read: No such file or directory"),
        (
            "./mine.py:Min",
            "mine.py: has no class 'Min'\n  hint: did you mean 'Mine'?",
        ),
        ("./mine.py", "x.yaml:5:5: './mine.py' names no class in a file"),
        ("./mine.py:helper", "mine.py:11: helper is of type function, not a policy"),
        ("{policy: ./mine.py:Mine, options: {rto: 0}}", "x.yaml:5:45: option 'rto': 0 is out of"),
        ("{policy: ./mine.py:Mine, options: {rot: 4}}", "x.yaml:5:40: unknown option 'rot'"),
        ("{policy: ./mine.py:Mine, options: {rto: x}}", "x.yaml:5:45: option 'rto': 'x' is not"),
        (
            "{policy: ./mine.py:Mine, label: ud_rto}",
            "x.yaml:6:5: two transports are called",
        ),
        ("{policy: ./mine.py:Mine, name: ud_rto}", "x.yaml:5:30: 'name' beside 'policy'"),
        ("{label: mine}", "x.yaml:5:5: a transport has a name, or a policy"),
        ("{name: csa_ud, parity: 0}", "x.yaml:5:20: 'parity' does not belong here"),
    ],
)
def test_what_is_wrong_has_a_place(tmp_path, entry, what):
    with pytest.raises(UserError) as caught:
        experiment(tmp_path, entry)
    assert what.format(tmp_path) in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("mine", "what"),
    [
        ("class Mine(:\n", ":1:12: SyntaxError: "),
        ("import nothing_like_that\n", ":1: ModuleNotFoundError: No module named"),
        ("x = 1\nraise KeyError('x')\n", ":2: KeyError: 'x'"),
        ("class Mine:\n    pass\n", ":1: Mine is a class of its own, not a policy"),
        ("Mine = 3\n", ":1: Mine is of type int, not a policy"),
        (MINE.replace("options = (", "framing = 'ip'\n    options = ("), ":5: Mine.framing is"),
        (MINE.replace("Option(\"rto\", 3, \"in SRTT\", least=1, most=100)", "'rto'"),
         ":5: Mine.options holds something else"),
        (MINE.replace("(Option(\"rto\", 3, \"in SRTT\", least=1, most=100),)", "None"),
         ":5: Mine.options holds something else"),
        (MINE.replace("most=100),)", "most=100), Option('rto', 4, 'in SRTT'))"),
         ":5: Mine.options has two options of one name"),
        (MINE.replace("(Base):", "(Base):\n    def __init_subclass__(cls): 1/0", 1),
         ":5: Mine cannot be used: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(0)\n", ":2: SystemExit: 0"),
        ("\nraise KeyboardInterrupt\n", ":2: KeyboardInterrupt: "),
        (MINE.replace("options = (", "chunk_packets = 0\n    options = ("),
         ":5: Mine.chunk_packets: 0 is no number of packets from 1 to 65,535"),
        (MINE + "\n\nclass Mine(Mine):\n    def on_sendt(self, send, now_ns):\n        return []\n",
         "Mine.on_sendt is no hook, so it is never called\n  hint: did you mean 'on_sent'?"),
        ("\nwhile True:\n    pass\n", "the file did not return within"),
        (_with("framings = 5"), ":5: Mine.framings is 5, not a tuple of ud and uc_immediate"),
        (_with("framings = ()"), ":5: Mine.framings is (), not a tuple of"),
        (_with("framings = ('ud', ['ip'])"), ":5: Mine.framings is ('ud', ['ip']), not a tuple"),
        (_with("name = 7"), ":5: Mine.name is 7, not a text"),
        (_with("has_rto = 1"), ":5: Mine.has_rto is 1, not True or False"),
        (_with("codes = 7"), ":5: Mine.codes is 7, not a class method"),
        (_with_method("codes", "values", "1/0"), ":8: codes raised ZeroDivisionError"),
        (_with("def codes(self, values): return ()"), ":6: codes raised TypeError: Mine.codes()"),
        (_with_method("codes", "values", "7"), ":6: codes returned 7, not at most 255 pairs"),
        (_with_method("codes", "values", "((200, 57),)"), ":6: codes returned ((200, 57),), not"),
        (_with_method("codes", "values", "((0, 1),)"), ":6: codes returned ((0, 1),), not"),
        (_with_method("codes", "values", "((4, 1),)"), ": code_chunk_packets returned 0, not a nu"),
        (_with_method("codes", "values", "((4, 1),)", "code_chunk_packets", "values, mtu", "None"),
         ":9: code_chunk_packets returned None, not a number of packets from 1 to 65,535"),
        (_with_method("check", "values", "self"), ":8: check raised NameError"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_names_its_line(tmp_path, monkeypatch, mine, what):
    monkeypatch.setattr(policy_call, "LIMIT_S", 1.0)
    with pytest.raises(UserError) as caught:
        experiment(tmp_path, "./mine.py:Mine", mine)
    assert str(caught.value).startswith(str(tmp_path / "mine.py"))
    assert what in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


def test_several_codes_need_a_framing_that_names_them(tmp_path):
    codes = _with_method("codes", "values", "((4, 1), (4, 2))",
                         "code_chunk_packets", "values, mtu", "1")  # fmt: skip
    experiment(tmp_path, "./mine.py:Mine", codes)
    with pytest.raises(UserError, match="has several codes, and packets of uc_im"):
        experiment(tmp_path, "{policy: ./mine.py:Mine, framing: uc_immediate}", codes)


@pytest.mark.parametrize("end", ["os._exit(3)", "import posix; posix._exit(3)"])
def test_a_file_cannot_end_its_process(tmp_path, end):
    with pytest.raises(UserError) as caught:
        experiment(tmp_path, "./mine.py:Mine", f"import os\n{end}\n")
    why = "executing it ended its process: exit code 3"
    assert str(caught.value) == f"{tmp_path}/mine.py:2: {why}"
    assert os._exit is posix._exit
    assert os._exit.__name__ == "_exit"


def test_a_file_that_kills_its_process_kills_that_one_alone(tmp_path):
    with pytest.raises(UserError) as caught:
        experiment(tmp_path, "./mine.py:Mine", "import os\nos.abort()\n")
    why = f"{tmp_path}/mine.py: executing it ended its process: killed by SIGABRT"
    assert str(caught.value) == f"{tmp_path}/x.yaml:5:5: {why}"


@pytest.mark.parametrize(
    ("end", "status", "what"),
    [
        ("os._exit(0)", 2, "lab: {file}:6: executing it ended its process: exit code 0"),
        ("os.kill(os.getpid(), 9)", -9, "lab: {file}: executing it ended the command"),
    ],
)
def test_a_file_that_ends_the_command_at_its_second_execution(tmp_path, end, status, what):
    (tmp_path / "mine.py").write_text(
        "import os\nimport pathlib\nmark = pathlib.Path(__file__).with_name('mark')\n"
        f"if mark.exists():\n    # the second time\n    {end}\nmark.touch()\n{MINE}"
    )
    found = subprocess.run(
        [sys.executable, "-m", "softroce_lab.cli", "run", "incast", "--clock", "virtual",
         "--transport", "mine.py:Mine", "-o", tmp_path],
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert found.returncode == status
    assert found.stderr.strip() == what.format(file=tmp_path / "mine.py")


def test_what_a_file_prints_is_printed_once(tmp_path):
    (tmp_path / "mine.py").write_text(f"print('mine is here')\n{MINE}")
    text = (
        "from softroce_lab.experiment.transports import written\n"
        "written.of_argument('mine.py:Mine')\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout == "mine is here\n"


def test_a_pipe_is_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "mine.py")
    with pytest.raises(UserError, match=r"mine\.py: is not a file"):
        experiment(tmp_path, "./mine.py:Mine", None)


def test_a_file_that_changes_in_between_is_refused(tmp_path):
    loaded = experiment(tmp_path, "./mine.py:Mine")
    (tmp_path / "mine.py").write_text(MINE + "\n# changed\n")
    policy_file.entry.cache_clear()
    with pytest.raises(UserError, match="has changed since the command began"):
        _ = loaded.transports[0].entry


def test_a_policy_that_leaves_a_thread_does_not_keep_the_command(tmp_path):
    hook = (
        "    def on_sent(self, send, now_ns):\n"
        "        Thread(target=sleep, args=(600,)).start()\n"
        "        return []\n"
    )
    text = f"from threading import Thread\nfrom time import sleep\n{MINE}"
    (tmp_path / "mine.py").write_text(text.replace("(Base):\n", f"(Base):\n{hook}", 1))
    command = [sys.executable, "-m", "softroce_lab.cli", "run", "point-to-point"]
    command += ["--clock", "virtual", "--seed", "1", "--set", "deadline=10ms"]
    result = subprocess.run(
        [*command, "--transport", "./mine.py:Mine"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}, timeout=120,
        capture_output=True, text=True,
    )  # fmt: skip
    assert "Mine" in result.stdout, result.stderr
    assert result.returncode in (0, 1)
