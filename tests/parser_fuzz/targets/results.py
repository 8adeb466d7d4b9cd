# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs and earlier runs left behind; the first octet chooses the reader."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from softroce_lab.check import evidence as facts
from softroce_lab.check import report, suites
from softroce_lab.check.suites import Format
from softroce_lab.errors import LabError
from softroce_lab.experiment.perftest import tests as printed
from softroce_lab.fabric.ledger import planfile
from softroce_lab.telemetry import counters_file, drops
from tests.parser_fuzz import seed_corpus
from tests.parser_fuzz.files import file_of

_TRACE = seed_corpus.conversations()["csa_ud"]


def one(data: bytes) -> None:
    """Read it."""
    which, rest = data[:1] or b"\0", data[1:]
    try:
        _READERS[which[0] % len(_READERS)](rest)
    except LabError as error:
        str(error)


def _drops(data: bytes) -> None:
    rows = drops.read_drops(file_of("drops.bin", data), since_ns=1, until_ns=1 << 63)
    assert rows.nbytes <= len(data)


def _columns(data: bytes) -> None:
    """What perftest or a pingpong printed."""
    text = data.decode("utf-8", "replace")
    rows, _ = printed.table(text)
    assert len(rows) <= text.count("\n") + 1
    printed.pingpong(text)


def _plan(data: bytes) -> None:
    planfile.read(file_of(planfile.FILE, data).parent)


def _run(data: bytes) -> None:
    """What a run directory says of itself, beside a capture: two documents with a 0 between."""
    manifest, _, links = data.partition(b"\0")
    file_of("manifest.json", manifest)
    file_of("links.json", links)
    evidence = suites.evidence_of(file_of(facts.TRACE, _TRACE), facts.Options())
    verdicts = suites.check(evidence, suites.chosen(()), Format.LAB)
    "\n".join(report.lines(report.Checked("run", evidence, tuple(verdicts)), 0)).encode()


def _counters(data: bytes) -> None:
    """What a process that owns a port publishes."""
    with contextlib.suppress(ValueError):  # as it documents
        counters_file.parse(data).document()


_READERS: tuple[Callable[[bytes], None], ...] = (
    _drops, _run, _columns, _plan, _counters,
)  # fmt: skip
