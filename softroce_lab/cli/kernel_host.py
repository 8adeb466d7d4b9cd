# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab kernel-host`: hosts whose RDMA is Linux's own, and what they boot from."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from softroce_lab import units
from softroce_lab.cli import completion
from softroce_lab.cli.options import Json, Lab, print_document, say
from softroce_lab.fabric import lab, runtime
from softroce_lab.fabric.observe import describe, view
from softroce_lab.plan.plan import KernelVersion
from softroce_lab.programs.kernel_host import image as guest_image
from softroce_lab.programs.kernel_host import kind as guest_kind

app = typer.Typer(add_completion=False, no_args_is_help=True)

_NODE = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="A kernel host of a running lab.",
        autocompletion=completion.hosts,
    ),
]


class Kernel(enum.StrEnum):
    """Debian's kernels."""

    DEBIAN_12 = "6.1"
    DEBIAN_13 = "6.12"


@app.callback()
def kernel_host() -> None:
    """Manage hosts of `kind: kernel`: small virtual machines that run Linux's Soft-RoCE."""


@app.command()
def prepare(
    kernel: Annotated[
        list[Kernel] | None, typer.Option(help="Build only this kernel; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Build the boot images of kernel hosts from Debian packages; `lab up` does so if needed."""
    images = {}
    for version in kernel or list(Kernel):
        images[version.value] = guest_image.prepare(version.value, say)
    means = guest_kind.means_of(images, say)
    if as_json:
        documents = [_image_document(version) for version in images]
        print_document(images=documents, accelerator=means.accelerator)
        return
    for version, image in images.items():
        print(f"{version:5} Linux {image.version}, {means.how}")


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """List the built images and the kernel hosts of all labs."""
    images = [_image_document(version.value) for version in Kernel]
    hosts = [host for condition in runtime.labs() for host in _hosts(condition)]
    if as_json:
        print_document(images=images, hosts=hosts)
        return
    for image in images:
        facts = "not built: lab kernel-host prepare"
        if image["version"]:
            facts = f"Linux {image['version']}, {units.format_bytes(image['size_bytes'])}"
        print(f"{image['kernel']:5} {facts}")
    for host in hosts:
        state = f"process {host['pid']}" if host["alive"] else "dead: lab kernel-host boot"
        print(f"{host['lab']}  {host['node']}  {state}")


@app.command()
def console(node: _NODE, lab: Lab = None) -> None:
    """Print the console output of a kernel host. For a shell: lab exec NODE -- bash."""
    seen = view.of_lab(lab)
    with seen.guest(node) as guest:
        typer.echo(guest.console.read_text("utf-8", "replace").replace("\r", ""), nl=False)


@app.command()
def boot(node: _NODE, lab_name: Lab = None) -> None:
    """Reboot a kernel host, dead or running; the lab stays up."""
    name = view.up(lab_name).name
    with lab.Lab.open(name) as held:
        held.boot(node, say)
    print(f"{node} is up")


@app.command()
def remove() -> None:
    """Delete all images; running guests continue."""
    print(f"{units.format_bytes(guest_image.remove(say))} freed")


def _image_document(kernel: KernelVersion) -> dict[str, Any]:
    image = guest_image.find(kernel)
    files = [] if image is None else [image.vmlinux, image.initramfs, image.disk]
    return {
        "kernel": kernel,
        "version": image.version if image else None,
        "size_bytes": guest_image.disk_usage(files),
        "files": [str(path) for path in files],
    }


def _hosts(condition: runtime.Condition) -> list[dict[str, Any]]:
    return [{"lab": condition.name, **host} for host in describe.guests_document(condition.history)]
