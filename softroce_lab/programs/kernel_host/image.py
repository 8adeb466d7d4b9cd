# SPDX-License-Identifier: GPL-2.0-or-later
"""What kernel hosts boot: Debian's own kernel, an initramfs and a disk image, of Debian packages.

Built once and kept in the user's cache folder, under a name that is a hash of what it is made of:

    <release>-<hash>/vmlinux      uncompressed, for unpacking it takes an emulated processor seconds
    <release>-<hash>/root.ext4    the packages below, and the modules that experiments may want
    boot-<hash>.cpio              the modules that a guest needs, boot.sh and agent.py

mmdebstrap writes the root file system, as root; whatever else it takes runs inside of that.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from softroce_lab.errors import EnvironmentLackError, RunError
from softroce_lab.plan.plan import KernelVersion

Say = Callable[[str], None]

RELEASES: Mapping[KernelVersion, str] = {"6.1": "bookworm", "6.12": "trixie"}
PACKAGES = (
    "busybox-static", "ethtool", "ibverbs-providers", "ibverbs-utils", "iperf3", "iproute2",
    "iputils-ping", "kmod", "libc-bin", "perftest", "procps", "python3", "python3-pyverbs",
    "rdma-core", "rdmacm-utils", "strace", "tcpdump", "zstd",
)  # fmt: skip
# Loaded at boot, in this order, with what they need. rxe computes its ICRC by the crypto API.
BOOT_MODULES = (
    "virtio_pci", "virtio_blk", "ext4", "overlay", "virtio_console", "virtio_net", "virtio_rng",
    "qemu_fw_cfg", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad",
)  # fmt: skip
# For `modprobe` in the guest.
MORE_MODULES = (
    "veth", "bridge", "dummy", "tun", "8021q", "vxlan", "sch_netem", "sch_ingress", "cls_bpf",
    "act_bpf", "cls_matchall", "act_mirred", "sch_fq", "sch_fq_codel", "sch_tbf", "sch_htb",
    "sch_prio", "nf_tables",
)  # fmt: skip
# Faster, where the kernel has such a thing and the processor can do it.
OPTIONAL_MODULES = ("crc32_pclmul", "crc32c_intel")

_LOCK = "lock"
_FORMAT = 2  # of what the code below makes of all that
_HERE = Path(__file__).resolve().parent
_BOOT_SCRIPT = _HERE / "boot.sh"
_AGENT = _HERE / "agent.py"
_NO_FILES = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# The kernel's package is unpacked and not installed: nobody needs its initramfs.
_FETCH_KERNEL = """
set -e
cd "$1" && mkdir kernel
package=$(chroot . apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -n 1)
chroot . sh -c "cd /kernel && apt-get -q download $package && dpkg-deb -x *.deb . && rm *.deb"
"""
_FOLDERS = ("bin", "changes", "dev", "image", "modules", "proc", "root", "sys")
_BUILD_S, _STEP_S, _WAIT_S = 900, 300, 1800
_SIGNED = b"~Module signature appended~\n"
_SIGNATURE = struct.Struct(">8xI")  # struct module_signature
_SPARE_PART = 12  # of an image, for the file system's own tables
_LAST_LINES = 8
_TRAILER = "TRAILER!!!"  # the last entry of an archive
_TOOLS = {"mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs"}


@dataclass(frozen=True, slots=True)
class Image:
    """The files that a kernel host boots from."""

    vmlinux: Path
    initramfs: Path
    disk: Path
    version: str  # "6.1.0-56-amd64"

    @property
    def exists(self) -> bool:
        """Whether it is whole."""
        return all(path.is_file() for path in (self.vmlinux, self.initramfs, self.disk))


def cache() -> Path:
    """Where images are kept; it may be deleted while no guest boots."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "softroce_lab", "kernel-hosts")


def find(kernel: KernelVersion) -> Image | None:
    """The image with Debian's kernel of this version, if it is there."""
    folder = _folder(kernel)
    try:
        version = (folder / "version").read_text("utf-8").strip()
    except FileNotFoundError:
        return None
    made = Image(folder / "vmlinux", _initramfs(folder), folder / "root.ext4", version)
    return made if made.exists else None


def prepare(kernel: KernelVersion, say: Say) -> Image:
    """The same, built if it is not there. `say` gets the progress.

    EnvironmentLackError if tools are missing, RunError if a step fails.
    """
    if cache().is_dir():
        _check_ours()
    if (made := find(kernel)) is not None:
        return made
    if missing := [package for tool, package in _TOOLS.items() if not _which(tool)]:
        raise EnvironmentLackError(", ".join(missing), hint=f"apt install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise EnvironmentLackError("the rights of root", hint="run it as root, or with sudo")
    with _alone(say):
        _build_missing(kernel, say)
    made = find(kernel)
    assert made is not None  # noqa: S101 - it was built now
    return made


def remove(say: Say) -> int:
    """Delete all images, when no build runs. Returns the number of freed bytes.

    The lock stays: another one of the same name would keep nobody out. RunError.
    """
    if not cache().is_dir():
        return 0
    with _alone(say):
        made = [path for path in cache().iterdir() if path.name != _LOCK]
        freed = disk_usage(path for path in cache().rglob("*") if path.is_file())
        for each in made:
            _delete(each)
    return freed


def disk_usage(files: Iterable[Path]) -> int:
    """Bytes that these take on the disk, which is less than they seem to have."""
    return sum(path.stat().st_blocks * 512 for path in files)


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _folder(kernel: KernelVersion) -> Path:
    modules = (BOOT_MODULES, MORE_MODULES, OPTIONAL_MODULES)
    made_of = _hash(RELEASES[kernel], PACKAGES, modules, _NO_FILES, _FETCH_KERNEL, _FORMAT)
    return cache() / f"{RELEASES[kernel]}-{made_of}"


def _initramfs(folder: Path) -> Path:
    sources = [path.read_text("utf-8") for path in (_BOOT_SCRIPT, _AGENT)]
    return folder / f"boot-{_hash(*sources)}.cpio"


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@contextlib.contextmanager
def _alone(say: Say) -> Iterator[None]:
    """One process builds or deletes at a time. RunError after half an hour."""
    cache().mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_ours()
    with _open_lock() as lock:
        deadline, noted = time.monotonic() + _WAIT_S, False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not noted:
                    say("another process builds a kernel host's image; waiting for it")
                noted = True
                if time.monotonic() > deadline:
                    busy = f"{cache() / _LOCK} stays locked"
                    raise RunError(busy, hint="see what holds it") from None
                time.sleep(0.2)
        yield


def _check_ours() -> None:
    """RunError if others could put there what root boots, or have deleted what is not theirs."""
    status = cache().lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise RunError(f"{cache()} is no directory", hint="delete it: it is made anew")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        hint = f"chown it to yourself and chmod go-w, if you trust what is in it: {cache()}"
        raise RunError(f"{cache()} is not yours, or others may write to it", hint=hint)


def _open_lock() -> IO[bytes]:
    """The lock file itself, not where a link leads. RunError."""
    path = cache() / _LOCK
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")
    except OSError as error:
        raise RunError(f"cannot open {path}: {error.strerror}") from error


def _build_missing(kernel: KernelVersion, say: Say) -> None:
    folder = _folder(kernel)
    if not (folder / "version").is_file():
        begun, building = time.monotonic(), folder.with_suffix(".building")
        _delete(building)
        building.mkdir()
        try:
            _build(kernel, building, say)
            for old in cache().glob(f"{RELEASES[kernel]}-*[0-9a-f]"):
                _delete(old)  # a guest that runs from it goes on
            building.rename(folder)
            say(f"kernel {kernel}: built in {time.monotonic() - begun:.0f} s, {folder}")
        finally:
            _delete(building)
    initramfs = _initramfs(folder)
    if not initramfs.is_file():
        for old in folder.glob("boot-*"):
            old.unlink()
        _write_initramfs(folder, initramfs)


def _build(kernel: KernelVersion, folder: Path, say: Say) -> None:
    """Fill `folder` with all but the initramfs."""
    root = folder / "root"
    say(f"kernel {kernel}: Debian packages of {RELEASES[kernel]}, about 150 MB")
    _bootstrap(RELEASES[kernel], root)
    (version,) = [path.name for path in _modules(root / "kernel").iterdir()]
    say(f"kernel {kernel}: {version}, modules, disk image")
    _unpack_kernel(root, root / "kernel/boot" / f"vmlinuz-{version}", folder / "vmlinux")
    _copy_boot_modules(root, version, folder / "modules")
    _keep_modules(root, version)
    shutil.copy(root / "usr/bin/busybox", folder / "busybox")
    _delete(root / "kernel")
    used_mib = int(_run(["du", "-sm", "--one-file-system", root]).split()[0])
    size_mib = used_mib + used_mib // _SPARE_PART + 32
    command = ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-d", root]
    _run([*command, folder / "root.ext4", f"{size_mib}M"])
    _delete(root)
    (folder / "version").write_text(version + "\n", "utf-8")


def _bootstrap(release: str, root: Path) -> None:
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _NO_FILES]
    options += ["--aptopt=Apt::Install-Recommends false", f"--include={','.join(PACKAGES)}"]
    hook = f"--customize-hook={_FETCH_KERNEL}"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", *options, hook]
    try:
        _run([*command, release, root], _BUILD_S)
    except RunError as error:
        hint = "check the network, and that mmdebstrap can make a Debian here"
        raise RunError(error.what, hint=hint) from error


def _modules(root: Path) -> Path:
    """Debian 13's kernels bring their modules under /usr."""
    under_usr = root / "usr/lib/modules"
    return under_usr if under_usr.is_dir() else root / "lib/modules"


def _unpack_kernel(root: Path, vmlinuz: Path, vmlinux: Path) -> None:
    """The ELF image within a bzImage. RunError if there is none."""
    data = vmlinuz.read_bytes()
    for magic, unpack in ((b"\xfd7zXZ\x00", _unxz), (b"\x28\xb5\x2f\xfd", _unzstd)):
        for match in re.finditer(re.escape(magic), data):
            image = unpack(root, data[match.start() :])
            if image.startswith(b"\x7fELF"):
                vmlinux.write_bytes(image)
                return
    raise RunError(f"{vmlinuz.name} is packed in a way that nobody here knows")


def _unxz(_: Path, data: bytes) -> bytes:
    with contextlib.suppress(lzma.LZMAError):
        return lzma.LZMADecompressor().decompress(data)
    return b""


def _unzstd(root: Path, data: bytes) -> bytes:
    """By the guest's own zstd; what follows the kernel is no concern of ours."""
    command = ["chroot", root, "zstd", "-dc"]
    return subprocess.run(command, input=data, capture_output=True, timeout=_STEP_S).stdout


def _needed(root: Path, version: str, modules: Sequence[str]) -> list[Path]:
    """The files of these modules and of all that they need, in the order to load them.

    A module that there is not, or that is built in, is left out.
    """
    found: dict[Path, None] = {}
    for module in modules:
        command = ["chroot", root, "modprobe", "-d", "/kernel", "-S", version, "-D", module]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STEP_S)
        if done.returncode and module not in OPTIONAL_MODULES:
            raise RunError(f"the kernel {version} has no module {module}: {done.stderr.strip()}")
        for line in done.stdout.splitlines():
            word, _, path = line.partition(" ")
            if word == "insmod":
                found[root / path.split()[0].lstrip("/")] = None
    return list(found)


def _copy_boot_modules(root: Path, version: str, target: Path) -> None:
    """Unpacked, without signatures, and their order: `?` before those that may fail to load.

    An emulated processor takes as long to check all signatures as to do all the rest.
    """
    if _modules(root / "kernel") != root / "kernel/lib/modules":
        (root / "kernel/lib").mkdir(exist_ok=True)  # where kmod looks
        (root / "kernel/lib/modules").symlink_to("../usr/lib/modules")
    _run(["chroot", root, "depmod", "-b", "/kernel", version])
    target.mkdir()
    order = []
    for path in _needed(root, version, (*OPTIONAL_MODULES, *BOOT_MODULES)):
        data = path.read_bytes()
        name = path.name.removesuffix(".xz")
        if path.suffix == ".xz":
            data = lzma.decompress(data)
        (target / name).write_bytes(_unsigned(data))
        optional = name.removesuffix(".ko").replace("-", "_") in OPTIONAL_MODULES
        order.append(f"{'?' if optional else ''}{name}\n")
    (target / "order").write_text("".join(order), "utf-8")


def _unsigned(module: bytes) -> bytes:
    """A module without its signature: linux/module_signature.h."""
    if not module.endswith(_SIGNED):
        return module
    end = len(module) - len(_SIGNED) - _SIGNATURE.size
    *_, signature_bytes = _SIGNATURE.unpack_from(module, end)
    return module[: end - signature_bytes]


def _keep_modules(root: Path, version: str) -> None:
    """Put the modules that may be wanted where the guest's modprobe looks."""
    tree = root / "kernel/lib/modules" / version
    kept = root / "usr/lib/modules" / version
    for path in _needed(root, version, (*OPTIONAL_MODULES, *BOOT_MODULES, *MORE_MODULES)):
        place = kept / path.relative_to(tree)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for path in tree.glob("modules.builtin*"):
        shutil.copy(path, kept)
    shutil.copy(tree / "modules.order", kept)
    shutil.copy(root / "kernel/boot" / f"config-{version}", kept / "config")
    _run(["chroot", root, "depmod", version])


def _write_initramfs(folder: Path, path: Path) -> None:
    archive = Archive()
    for name in _FOLDERS:
        archive.folder(name)
    archive.file("init", _BOOT_SCRIPT.read_bytes(), mode=0o755)
    archive.file("agent.py", _AGENT.read_bytes())
    archive.file("bin/busybox", (folder / "busybox").read_bytes(), mode=0o755)
    for module in sorted((folder / "modules").iterdir()):
        archive.file(f"modules/{module.name}", module.read_bytes())
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(archive.bytes())
    unfinished.rename(path)


def _delete(path: Path) -> None:
    """One file system only: should it be a mount, or one be left in it, that is not emptied."""
    _run(["rm", "-rf", "--one-file-system", "--preserve-root=all", "--", path])


def _run(command: Sequence[object], timeout_s: float = _STEP_S) -> str:
    """The standard output of a command that ends well. RunError with its last words otherwise."""
    words = [str(word) for word in command]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    environment = os.environ | {"PATH": path, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
            timeout=timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{words[0]} did not end in {timeout_s} s") from error
    if done.returncode:
        output = " / ".join((done.stdout + done.stderr).splitlines()[-_LAST_LINES:])
        raise RunError(f"{words[0]} failed ({done.returncode}); it said: {output}")
    return done.stdout


class Archive:
    """A cpio archive in memory, as Linux reads an initramfs from: the format `newc`.

    Documentation/driver-api/early-userspace/buffer-format.rst of the kernel has the format.
    Everything in an archive is root's and of no date, so equal ones are equal.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inodes = itertools.count(1)

    def folder(self, name: str) -> None:
        """A folder; the one that it is in comes first."""
        self._add(name, stat.S_IFDIR | 0o755, b"", links=2)

    def file(self, name: str, data: bytes, *, mode: int = 0o644) -> None:
        """A regular file."""
        self._add(name, stat.S_IFREG | mode, data)

    def bytes(self) -> bytes:
        """The whole archive."""
        return b"".join([*self._parts, _entry(_TRAILER, 0, 0, b"", 1)])

    def _add(self, name: str, mode: int, data: bytes, links: int = 1) -> None:
        self._parts.append(_entry(name, next(self._inodes), mode, data, links))


def _entry(name: str, inode: int, mode: int, data: bytes, links: int) -> bytes:
    text = name.encode() + b"\0"
    owner = group = date = device = 0
    fields = (inode, mode, owner, group, links, date, len(data), *(device,) * 4, len(text), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + text
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
