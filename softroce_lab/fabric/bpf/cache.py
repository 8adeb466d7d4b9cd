# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiled XDP programs, kept from one lab to the next: compiling is most of the time of `lab up`.

/var/cache/softroce_lab/xdp/<key>, or the same under $LAB_CACHE. The key covers all that goes into
a compilation, and the code that makes and reads the file; a line with the SHA-256 of the key and
the rest detects damaged files and those of another key. A file that another user could have
written is ignored. What cannot be read or kept is compiled, so the folder may be
removed at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from softroce_lab.fabric.bpf import image as bpf_image
from softroce_lab.fabric.bpf.image import Image
from softroce_lab.paths import XDP

_FOLDER = "/var/cache/softroce_lab"
_KEPT = 8  # images, the last used ones: of each source, one
_HEADERS = Path("/usr/include/linux/version.h")  # changes with the user-space headers


def _folder() -> Path:
    return Path(os.environ.get("LAB_CACHE", _FOLDER), "xdp")


def key(source: str, programs: Sequence[str], parameters: Mapping[str, int | str]) -> str:
    """The name of what comes out of these sources, with these parameters, on this machine."""
    described = [source, *programs, *(f"{name}={value}" for name, value in parameters.items())]
    described += [platform.release(), platform.version(), platform.machine()]
    digest = hashlib.sha256("\0".join(described).encode())
    for path in _ingredients():
        with contextlib.suppress(OSError):
            digest.update(b"\0" + bytes(path) + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _ingredients() -> Iterator[Path]:
    yield from sorted(path for path in XDP.rglob("*") if path.is_file())
    yield _HEADERS
    yield Path(bpf_image.__file__)  # the format of what is kept
    yield Path(__file__).with_name("compiler.py")  # the compiler's flags
    compiler = importlib.util.find_spec("bcc")
    if compiler is not None and compiler.origin is not None:
        yield Path(compiler.origin).with_name("version.py")


def recall(name: str) -> Image | None:
    """The image kept under this key, or None."""
    path = _folder() / name
    try:
        with open(path, "rb", opener=_opened_if_ours) as file:
            digest, _, data = file.read().partition(b"\n")
        os.utime(path)
    except OSError:
        return None
    if digest != _digest(name, data):
        return None
    try:
        return Image.unpack(data)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _digest(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).hexdigest().encode()


def _opened_if_ours(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        os.close(fd)
        raise PermissionError(path)
    return fd


def keep(name: str, image: Image) -> None:
    """Keep the image for a later `recall`, and forget the oldest; nothing if there is no room."""
    folder = _folder()
    data = image.pack()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            file = Path(aside, name)
            file.write_bytes(_digest(name, data) + b"\n" + data)
            file.replace(folder / name)
        _forget_all_but(folder, _KEPT)


def _forget_all_but(folder: Path, count: int) -> None:
    files = [path for path in folder.iterdir() if path.is_file()]
    for path in sorted(files, key=lambda path: path.stat().st_mtime)[:-count]:
        path.unlink(missing_ok=True)
