# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the processes that own a lab's ports publish their counters (telemetry/counters_file.py).

A file is its process's: the process removes it when it ends. One that was killed leaves it behind,
until another process opens the port, or the lab goes down.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softroce_lab.errors import LabError
from softroce_lab.plan.plan import Port
from softroce_lab.telemetry import counters_file, published_transitions
from softroce_lab.telemetry.counters_file import Published


def path_for(lab_directory: Path, port: Port) -> str:
    """Where the owner of `port` publishes; "" in a lab that came up without a place for it."""
    directory = lab_directory / counters_file.DIRECTORY
    return str(directory / str(port)) if directory.is_dir() else ""


def of_port(lab_directory: Path, port: Port) -> list[Published]:
    """The counters of all processes that have `port`, as published. RunError."""
    return counters_file.read_all(lab_directory / counters_file.DIRECTORY, str(port))


def transitions_of_port(lab_directory: Path, port: Port) -> list[dict[str, Any]]:
    """The newest of the owner's queue pairs with a backup; [] without an owner. RunError."""
    alive = {each.snapshot.pid for each in of_port(lab_directory, port) if each.alive}
    directory = lab_directory / counters_file.DIRECTORY
    return published_transitions.read(directory, str(port), alive)


def remove(directory: Path) -> None:
    """Remove the directory. LabError if something else lies in it."""
    if not directory.is_dir():
        return
    for path in directory.glob("*:*"):  # with what lies beside them, `h1:eth1.shift`
        path.unlink(missing_ok=True)
    strangers = sorted(path.name for path in directory.iterdir())
    if strangers:
        raise LabError(
            f"{directory} holds what the lab did not make: {', '.join(strangers)}",
            hint="remove that, then run: lab doctor --clean",
        )
    directory.rmdir()
