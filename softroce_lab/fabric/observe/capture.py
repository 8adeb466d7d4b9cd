# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures of packets on directed links: the lab's monitor writes them, as pcapng.

A capture lasts as long as the connection to the monitor: its client may die, and the
file is whole all the same, its links' packets copied no more.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from softroce_lab.errors import RunError
from softroce_lab.fabric import lacks
from softroce_lab.fabric.daemons.monitor import Answer, Connection, Word
from softroce_lab.telemetry.capture_figures import Figures, InterfaceFigures

_FAREWELL_S = 10.0  # for what a slow reader of a pipe has not yet taken


class Capture:
    """A capture that runs until it is closed, has enough packets, or cannot write."""

    def __init__(
        self,
        directory: Path,
        links: Mapping[int, str],
        file: int,
        *,
        snap_bytes: int = 0,
        most_packets: int = 0,
    ) -> None:
        """Capture the directed `links`, by number and name, of the lab in `directory`.

        `file` is a descriptor of an empty file, or of a pipe, which is written to without ever
        waiting for its reader; the caller may close it. `snap_bytes` of each packet; 0: all.
        `most_packets` in all; 0: no end. EnvironmentLackError without ring buffers, RunError if
        the monitor is dead.
        """
        lacks.need(lacks.RING_BUFFERS)
        self._names = tuple(links.values())
        self._over: Figures | None = None
        self._monitor = Connection(directory)
        try:
            with open(os.memfd_create("links"), "wb", buffering=0) as listing:  # noqa: PTH123
                listing.write("".join(f"{n} {name}\n" for n, name in links.items()).encode())
                files = (file, listing.fileno())
                self._monitor.send(Word.CAPTURE, snap_bytes, most_packets, files)
            self._check(self._monitor.receive())
        except BaseException:
            self._monitor.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it without hearing how; its file is whole."""
        self._monitor.close()

    def wait(self, timeout_s: float) -> Figures | None:
        """How it ended by itself, within `timeout_s`; None: it continues.

        RunError if the monitor died.
        """
        if self._over is None and select.select([self._monitor], [], [], max(timeout_s, 0))[0]:
            self._receive()
        return self._over

    def figures(self) -> Figures:
        return self._over or self._request(Word.COUNT)

    def end(self) -> Figures:
        """End it with all packets so far; return the result. RunError if the monitor died."""
        return self._over or self._request(Word.END)

    def _request(self, word: Word) -> Figures:
        self._monitor.send(word)
        return self._receive()

    def _receive(self) -> Figures:
        answer = self._monitor.receive(_FAREWELL_S)
        found = self._figures(answer)
        if answer.word == Word.END:
            self._over = found
        return found

    def _figures(self, answer: Answer) -> Figures:
        if not answer.numbers:
            raise RunError(f"the lab's monitor does not capture: {os.strerror(answer.error)}")
        each = zip(self._names, answer.numbers[::2], answer.numbers[1::2], strict=True)
        return Figures(tuple(InterfaceFigures(*row) for row in each), answer.error)

    def _check(self, answer: Answer) -> None:
        if answer.error:
            raise RunError(f"the lab's monitor cannot capture: {os.strerror(answer.error)}")
