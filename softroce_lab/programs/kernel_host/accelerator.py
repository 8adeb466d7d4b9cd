# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether guests run on the processor (KVM) or are emulated (TCG): tried, not concluded.

/dev/kvm may be there and yet run no stock kernel, as where the machine itself is a guest of a
hypervisor that only runs paravirtual ones. So a kernel is booted, once per boot of this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import IO

from softroce_lab.fabric.ledger.identity import boot_id
from softroce_lab.programs.kernel_host import image as guest_image
from softroce_lab.programs.kernel_host import machine as guest_machine
from softroce_lab.programs.kernel_host.image import Image, Say

KVM = "kvm"
TCG = "tcg,thread=multi"

_DEVICE = Path("/dev/kvm")
_PROBE_S = 6.0  # under KVM it takes one
_WORD = b"softroce_lab: it does"
_REFUSAL = b"KVM internal error"


def choose(image: Image, say: Say) -> str:
    """KVM if a kernel of `image` comes up under it, else TCG. `say` gets the attempt."""
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return TCG
    known = guest_image.cache() / f"accelerator-{_situation()}"
    with contextlib.suppress(FileNotFoundError):
        return known.read_text("utf-8")
    say("does a kernel come up under KVM?")
    found = KVM if _comes_up(KVM, image) else TCG
    say("it does" if found == KVM else "it does not: kernel hosts are emulated")
    for old in guest_image.cache().glob("accelerator-*"):
        old.unlink(missing_ok=True)
    known.write_text(found, "utf-8")
    return found


def _situation() -> str:
    status = _DEVICE.stat()
    facts = (boot_id(), guest_machine.program(), status.st_rdev)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _comes_up(accelerator: str, image: Image) -> bool:
    command = guest_machine.probe_command(accelerator, image)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT
    ) as machine:
        assert machine.stdout is not None  # noqa: S101 - it is a pipe
        try:
            return _WORD in _listen(machine.stdout)
        finally:
            machine.kill()


def _listen(output: IO[bytes]) -> bytes:
    """What is printed until it is clear, or time is up."""
    printed, deadline = b"", time.monotonic() + _PROBE_S
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while _WORD not in printed and _REFUSAL not in printed:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            data = os.read(output.fileno(), 4096)
            if not data:
                break
            printed += data
    return printed
