# SPDX-License-Identifier: GPL-2.0-or-later
"""Starting the kernel hosts of a lab, all at once, and waiting until they run commands."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence

from softroce_lab.fabric import guests
from softroce_lab.fabric.ledger import process
from softroce_lab.fabric.ledger.ledger import Ledger
from softroce_lab.fabric.net import netns
from softroce_lab.plan.plan import KernelVersion, Node, Plan
from softroce_lab.programs import execute
from softroce_lab.programs.kernel_host import accelerator as guest_accelerator
from softroce_lab.programs.kernel_host import guest, machine
from softroce_lab.programs.kernel_host import image as guest_image
from softroce_lab.programs.kernel_host.guest import Guest
from softroce_lab.programs.kernel_host.image import Image, Say

READY_S = 120.0  # emulated on a busy machine a guest takes ten to twenty

_HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Means:
    """What guests boot from, and on."""

    images: Mapping[KernelVersion, Image]
    accelerator: str


def prepare(plan: Plan, say: Say) -> Means:
    """Have images and an accelerator for all kernel hosts of `plan`.

    EnvironmentLackError, RunError.
    """
    machine.program()
    kernels = sorted({node.guest.kernel for node in plan.kernel_hosts if node.guest})
    images = {kernel: guest_image.prepare(kernel, say) for kernel in kernels}
    return Means(images, accelerator(images, say))


def accelerator(images: Mapping[KernelVersion, Image], say: Say) -> str:
    """What guests run on here. EnvironmentLackError without QEMU."""
    machine.program()
    return guest_accelerator.choose(next(iter(images.values())), say)


def how(means: Means) -> str:
    """The accelerator, in a word."""
    return "emulated" if means.accelerator == guest_accelerator.TCG else means.accelerator.upper()


def described(node: Node, means: Means) -> str:
    """What it boots, in a few words."""
    assert node.guest is not None  # noqa: S101 - a kernel host has one
    return f"Linux {means.images[node.guest.kernel].version}, {how(means)}"


def start(ledger: Ledger, plan: Plan, node: Node, namespace: int, means: Means) -> None:
    """Start the machine that `node` is, in its `namespace` whose ports are there.

    Its files are announced in the ledger. OSError.
    """
    assert node.guest is not None  # noqa: S101 - a kernel host has one
    directory = ledger.directory
    console, config = (directory / name for name in guest.files(node.name))
    hosts = execute.hosts_text(plan, _HOSTS)
    config.write_text(machine.config(plan, node, hosts), "utf-8")
    with contextlib.ExitStack() as stack:
        with netns.entered(namespace):
            taps = machine.attach(node, plan.mtu)
        for fd in taps:
            stack.callback(os.close, fd)
        image = means.images[node.guest.kernel]
        argv = machine.command(node, node.guest, image, means.accelerator, taps, directory)
        log_file = stack.enter_context(console.open("ab"))
        process.spawn(
            ledger,
            argv,
            role=guests.role(node.name),
            netns_fd=namespace,
            stdout=log_file,
            stderr=log_file,
            pass_fds=taps,
        )


def await_ready(guests: Sequence[Guest], check: Callable[[], None]) -> None:
    """Wait until all run commands; `check` is called meanwhile and may raise. RunError."""
    deadline = time.monotonic() + READY_S
    for each in guests:
        each.await_ready(deadline, check)
