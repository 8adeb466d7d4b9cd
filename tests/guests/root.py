# SPDX-License-Identifier: GPL-2.0-or-later
"""Root file systems for guests: Debian, its own kernel, and this checkout, provisioned.

Made on the host, so that a guest needs no network, and kept in the user's cache folder: first
`base`, a small Debian; then `ready`, a copy of it in which provision.sh has
run. A later checkout is provisioned on top of `ready` until something changes what it installs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softroce_lab.paths import PROJECT_ROOT

CHECKOUT = "softroce_lab"  # under the guest's /
HERE = Path(__file__).resolve().parent
PROVISION = HERE / "provision.sh"

_PACKAGES = "ca-certificates,iproute2,linux-image-amd64,mount,zstd"
_PREPARED = (".venv", ".lab-prepared", "build")  # by the launcher, in the guest's own checkout
_NOT_COPIED = shutil.ignore_patterns(
    *_PREPARED, ".git", ".vagrant", "runs", "__pycache__", ".*_cache", ".hypothesis", "*.so", "bin"
)
# How this host reaches its package sources, which a guest's root file system is made from too.
_HOST_FILES = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
_HOST_VARIABLES = ("PIP_", "SSL_", "http_proxy", "https_proxy", "no_proxy")
_BUILD_S, _PROVISION_S, _IMAGE_S = 900, 1800, 300
_SPARE_MIB = 1024  # for what the guest writes


def cache() -> Path:
    """Where all of it is kept; it may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "softroce_lab", "guests")


@contextmanager
def held(release: str) -> Iterator[Path]:
    """The folder of a release, by one process at a time."""
    folder = cache() / release
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def build(release: str, folder: Path) -> Path:
    """The provisioned root file system of a Debian release with this checkout, in `folder`."""
    base, ready = folder / "base", folder / "ready"
    if _renew(base, _PACKAGES):
        _run(["mmdebstrap", "--quiet", "--variant=apt", "--mode=root", f"--include={_PACKAGES}",
              release, base], _BUILD_S)  # fmt: skip
        _reach_sources(base)
        _record(base, _PACKAGES)
    sources = [PROVISION, PROJECT_ROOT / "lab", PROJECT_ROOT / "pyproject.toml"]
    made_from = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if _renew(ready, made_from):
        _run(["cp", "-a", "--reflink=auto", base, ready], _IMAGE_S)
        _record(ready, made_from)
    _copy_checkout(ready / CHECKOUT)
    _provision(ready)
    return ready


def image(root: Path, path: Path) -> None:
    """Write an ext4 image of `root`."""
    used_kib = int(_run(["du", "-sk", "--one-file-system", root], _IMAGE_S).split()[0])
    size_mib = used_kib * 11 // 10240 + _SPARE_MIB
    command = ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-d", root, path]
    _run([*command, f"{size_mib}M"], _IMAGE_S)


def _renew(root: Path, made_from: str) -> bool:
    """Whether `root` has to be made, because it is not there or was made from something else."""
    marker = root.with_suffix(".made-from")
    if marker.is_file() and marker.read_text() == made_from:
        return False
    marker.unlink(missing_ok=True)
    _run(["rm", "-rf", "--one-file-system", root], _IMAGE_S)
    return True


def _record(root: Path, made_from: str) -> None:
    root.with_suffix(".made-from").write_text(made_from)


def _reach_sources(root: Path) -> None:
    files = [Path("/", name) for name in _HOST_FILES]
    files += [
        path for path in Path("/etc/apt/apt.conf.d").iterdir() if b"Acquire::" in path.read_bytes()
    ]
    for path in files:
        if path.is_file():
            copy = root / path.relative_to("/")
            copy.unlink(missing_ok=True)
            shutil.copy(path, copy)


def _copy_checkout(target: Path) -> None:
    """This checkout, as a fresh clone would be; what the launcher has prepared there stays."""
    target.mkdir(exist_ok=True)
    old = [path for path in target.iterdir() if path.name not in _PREPARED]
    _run(["rm", "-rf", "--one-file-system", *old], _IMAGE_S)
    shutil.copytree(PROJECT_ROOT, target, symlinks=True, ignore=_NOT_COPIED, dirs_exist_ok=True)


def _provision(root: Path) -> None:
    """Run provision.sh in `root`, on this kernel, with the host's network."""
    passed = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(_HOST_VARIABLES)]
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--root"]
    clean = ["env", "-i", "HOME=/root", "LANG=C.UTF-8", *passed]
    script = Path("/", CHECKOUT, PROVISION.relative_to(PROJECT_ROOT))
    _run([*enter, root, *clean, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", script], _PROVISION_S)


def _run(command: list[object], timeout_s: float) -> str:
    """The standard output of a command that ends well; what it said, if it does not."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{command[0]}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
