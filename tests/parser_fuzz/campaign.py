# SPDX-License-Identifier: GPL-2.0-or-later
"""A fuzzer at work for so much processor time, and what it came to.

libFuzzer itself counts the time on the wall, of which a busy machine gives it any share.
"""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from softroce_lab.paths import PROJECT_ROOT
from tests.parser_fuzz.catalogue import Target

FULL_CPU_S = 1800
WORK = PROJECT_ROOT / "build" / "fuzz-work"
HANG_S = 60  # on the wall, for one input: the machine may be busy
_MOST_RSS_MIB = 1024
# atheris 3.0.0 keeps some of the numbers whose comparison it traces: a kilobyte for each input of
# `lab verify`. What one input takes is guard.py's to judge, and so is what inputs leave behind.
_MOST_RSS_MIB_ATHERIS = 6144
_MOST_STRETCH = 40  # of wall time, where others want the processor too
_MOST_START_S = 300
_END_S = 60
_FINDINGS = ("crash", "leak", "oom", "timeout")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LINE = re.compile(r"^#(\d+)\s.* cov: (\d+) ", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    cpu_s: float
    executions: int
    edges: int  # that libFuzzer's counters saw taken
    code: int  # of the process: 0 without a finding
    output: str

    def __str__(self) -> str:
        return (
            f"{self.cpu_s / 60:.1f} CPU-minutes, {self.executions} executions, {self.edges} edges"
        )


def wanted_cpu_s() -> float:
    """How long a long form runs: LAB_FUZZ_CPU_S, by default 30 minutes."""
    return float(os.environ.get("LAB_FUZZ_CPU_S", FULL_CPU_S))


def findings(target: Target) -> list[Path]:
    """The inputs of a target that libFuzzer saved because they are findings."""
    return [path for kind in _FINDINGS for path in (WORK / target.name).glob(f"{kind}-*")]


def run(target: Target, command: Sequence[str], cpu_s: float) -> Report:
    """Run a fuzzer for `cpu_s` of processor time, or until it finds something.

    What it adds to the corpus and what it finds is in WORK afterwards, by the target's name.
    """
    work = WORK / target.name
    grown, log = work / "corpus", work / "log"
    grown.mkdir(parents=True, exist_ok=True)
    corpus = target.write_corpus(work / "seeds")
    most_rss_mib = _MOST_RSS_MIB_ATHERIS if target.covered else _MOST_RSS_MIB
    options = [
        f"-artifact_prefix={work}/",
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={most_rss_mib + _peak_rss_mib()}",
        "-print_final_stats=1",
        *_dictionary(target, work / "words"),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options, str(grown), str(corpus)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=PROJECT_ROOT,
        )  # fmt: skip
        try:
            used_s = _wait(process, log, cpu_s)
        finally:
            process.kill()
            process.wait()
    return _report(used_s, process.returncode, log.read_text("utf-8", "replace"))


def _peak_rss_mib() -> int:
    """Of this process; a child begins with it as its own (exec_mmap() in Linux's fs/exec.c)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _dictionary(target: Target, path: Path) -> list[str]:
    """The option that tells libFuzzer the words of a language."""
    path.write_text("".join(map(_quoted, target.words())))
    return [f"-dict={path}"] if target.text else []


def _quoted(word: bytes) -> str:
    """A line of libFuzzer's dictionary."""
    return '"{}"\n'.format("".join(f"\\x{octet:02x}" for octet in word))


def _wait(process: subprocess.Popen[bytes], log: Path, cpu_s: float) -> float:
    """Until it ends, or has had its time and is told to; the processor time that it took.

    Its time begins when it has imported everything and tried the corpus: before, it does not know
    the signal.
    """
    until_s, began_s, used_s = time.monotonic() + _MOST_START_S + cpu_s * _MOST_STRETCH, 0.0, 0.0
    while process.poll() is None and time.monotonic() < until_s:
        used_s = _cpu_s(process.pid, used_s)
        if not began_s:
            began_s = used_s if b"INITED" in log.read_bytes() else 0.0
        elif used_s - began_s >= cpu_s:
            process.send_signal(signal.SIGUSR1)  # libFuzzer's sign to end gracefully
            process.wait(HANG_S + _END_S)
        time.sleep(min(1.0, cpu_s / 10))
    return used_s - began_s


def _cpu_s(pid: int, before_s: float) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return before_s
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S or before_s


def _report(cpu_s: float, code: int, output: str) -> Report:
    lines = _LINE.findall(output)
    count, edges = lines[-1] if lines else (0, 0)
    stated = re.findall(r"number_of_executed_units: (\d+)", output)
    executions = int(stated[-1] if stated else count)
    return Report(cpu_s, executions, int(edges), code, output)
