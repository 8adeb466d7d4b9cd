# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiles XDP programs with bcc, on hosts without kernel headers too, and loads them.

bcc requires a kernel source tree, but XDP code needs UAPI headers only. So it gets xdp/kernel, a
tree of six small files, and the system's UAPI headers (Debian's linux-libc-dev) for the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import struct
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from softroce_lab.errors import EnvironmentLackError, LabError
from softroce_lab.fabric.bpf import libbpf
from softroce_lab.paths import XDP

_UAPI = Path("/usr/include")

# Map flags that the kernel sets by itself, by kind, and would not take back: BPF_F_RDONLY_PROG of
# a device map (kernel/bpf/devmap.c).
_OF_THE_KERNEL = {14: 1 << 7, 25: 1 << 7}

_TREE = XDP / "kernel"

# bcc reads the tree's place from the environment and changes the working directory to it: both
# belong to the whole process.
_COMPILING = threading.Lock()


@contextlib.contextmanager
def _kernel_tree() -> Iterator[None]:
    variable = "BCC_KERNEL_SOURCE"
    with _COMPILING:
        before = os.environ.get(variable)
        os.environ[variable] = str(_TREE)
        try:
            yield
        finally:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before


def _include_folders() -> list[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH")
    return [XDP, *([_UAPI / multiarch] if multiarch else []), _UAPI]


def _bcc() -> Any:
    """The module, which carries no types."""
    try:
        bcc = importlib.import_module("bcc")
    except ImportError as error:
        raise EnvironmentLackError(
            "bcc for the system's Python", hint="apt install python3-bpfcc"
        ) from error
    if not (_UAPI / "linux/if_ether.h").is_file():
        raise EnvironmentLackError(
            "the kernel's user-space headers", hint="apt install linux-libc-dev"
        )
    return bcc


def compile_image(
    source: str, programs: Sequence[str], parameters: Mapping[str, int | str]
) -> Image:
    """Compile xdp/`source` with `parameters` as macros. EnvironmentLackError, LabError."""
    bcc = _bcc()
    flags = [f"-I{folder}" for folder in _include_folders()]
    flags += [f"-DPAGE_SIZE={os.sysconf('SC_PAGE_SIZE')}"]
    flags += [f"-D{name}={value}" for name, value in parameters.items()]
    try:
        with _kernel_tree():
            compiled = bcc.BPF(src_file=os.fsencode(XDP / source), cflags=flags, allow_rlimit=False)
    except Exception as error:  # bcc raises nothing more exact
        raise LabError(
            f"xdp/{source} does not compile: {error}", hint="the compiler's words are above"
        ) from error
    try:
        return _image(bcc.lib, compiled.module, programs)
    finally:
        compiled.cleanup()


def _image(lib: Any, module: int, programs: Sequence[str]) -> Image:
    """Take what bcc compiled; it has made the maps already."""
    lib.bpf_num_tables.argtypes = [ctypes.c_void_p]
    lib.bpf_num_tables.restype = ctypes.c_size_t
    lib.bpf_table_name.argtypes = lib.bpf_table_fd_id.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    lib.bpf_table_name.restype = ctypes.c_char_p
    maps = {
        lib.bpf_table_fd_id(module, number): lib.bpf_table_name(module, number).decode()
        for number in range(lib.bpf_num_tables(module))
    }
    return Image(
        tuple(_shape(fd, name) for fd, name in maps.items()),
        tuple(Program.of(name, _code(lib, module, name), maps) for name in programs),
    )


def _shape(fd: int, name: str) -> MapShape:
    info = libbpf.MapInfo.of(fd)
    own = _OF_THE_KERNEL.get(info.kind, 0)
    return MapShape(info.kind, name, info.key, info.value, info.entries, info.flags & ~own)


def _code(lib: Any, module: int, name: str) -> bytes:
    start = lib.bpf_function_start(module, name.encode())
    if not start:
        raise LabError(f"no program is called {name}")
    return ctypes.string_at(start, lib.bpf_function_size(module, name.encode()))


# --- Images: what was compiled, to keep and to load again without a compiler ------------------

_INSTRUCTION = struct.Struct("=BBhi")  # struct bpf_insn: code, registers, offset, immediate
_LOAD_64 = 0x18  # BPF_LD | BPF_IMM | BPF_DW, two instructions long
_MAP_FD = 1  # BPF_PSEUDO_MAP_FD, in the upper half of the registers


@dataclasses.dataclass(frozen=True, slots=True)
class MapShape:
    kind: int  # enum bpf_map_type
    name: str
    key_bytes: int
    value_bytes: int
    max_entries: int
    flags: int


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Instructions, and where in them the descriptor of which map goes."""

    name: str
    code: bytes
    references: tuple[tuple[int, str], ...]  # position of the instruction, name of the map

    @classmethod
    def of(cls, name: str, code: bytes, maps: Mapping[int, str]) -> Program:
        """Take the references out of `code`, in which the maps have these descriptors."""
        bare = bytearray(code)
        references: list[tuple[int, str]] = []
        position = 0
        while position < len(code):
            operation, registers, offset, fd = _INSTRUCTION.unpack_from(code, position)
            if operation == _LOAD_64 and registers >> 4 == _MAP_FD:
                references.append((position, maps[fd]))
                _INSTRUCTION.pack_into(bare, position, operation, registers, offset, 0)
            position += _INSTRUCTION.size * (2 if operation == _LOAD_64 else 1)
        return cls(name, bytes(bare), tuple(references))

    def linked(self, fds: Mapping[str, int]) -> bytes:
        """The instructions, with references to the maps behind these descriptors."""
        code = bytearray(self.code)
        for position, name in self.references:
            operation, registers, offset, _ = _INSTRUCTION.unpack_from(code, position)
            _INSTRUCTION.pack_into(code, position, operation, registers, offset, fds[name])
        return bytes(code)


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    maps: tuple[MapShape, ...]
    programs: tuple[Program, ...]

    def sized(self, entries: Mapping[str, int]) -> Image:
        maps = {shape.name: shape for shape in self.maps}
        for name, count in entries.items():
            maps[name] = dataclasses.replace(maps[name], max_entries=count)
        return dataclasses.replace(self, maps=tuple(maps.values()))

    def pack(self) -> bytes:
        programs = [(each.name, each.code.hex(), each.references) for each in self.programs]
        maps = [dataclasses.astuple(shape) for shape in self.maps]
        return json.dumps([maps, programs]).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Image:
        """What `pack` made. ValueError, TypeError if it did not."""
        maps, programs = json.loads(data)
        return cls(
            tuple(MapShape(*shape) for shape in maps),
            tuple(
                Program(name, bytes.fromhex(code), tuple((at, of) for at, of in references))
                for name, code, references in programs
            ),
        )


class Loaded:
    """An image's maps and programs in the kernel, as long as this is open; what is pinned stays.

    OSError if the kernel rejects a map or a program, with the verifier's reasons.
    """

    def __init__(self, image: Image) -> None:
        self._maps: dict[str, int] = {}
        self._programs: dict[str, int] = {}
        try:
            for shape in image.maps:
                self._maps[shape.name] = libbpf.create_map(*dataclasses.astuple(shape))
            for program in image.programs:
                self._programs[program.name] = libbpf.load_xdp(
                    program.name, program.linked(self._maps)
                )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for fds in (self._maps, self._programs):
            while fds:
                os.close(fds.popitem()[1])

    def pin(self, bpffs: Path, maps: Sequence[str]) -> None:
        fds = {name: self._maps[name] for name in maps} | self._programs
        for name, fd in fds.items():
            libbpf.pin(fd, bpffs / name)


# --- The cache: compiling is most of the time of `lab up` --------------------------------------
#
# /var/cache/softroce_lab/xdp/<key>, or the same under $LAB_CACHE. The key covers all that goes into
# a compilation, and this module. A line with the SHA-256 of the key and the rest detects damaged
# files and those of another key. A file that another user could have written is ignored. What
# cannot be read or kept is compiled, so the folder may be removed at any time.

_CACHE = "/var/cache/softroce_lab"
_KEPT = 8  # images, the last used ones: of each source, one
_HEADERS = Path("/usr/include/linux/version.h")  # changes with the user-space headers


def _cache_folder() -> Path:
    return Path(os.environ.get("LAB_CACHE", _CACHE), "xdp")


def cache_key(source: str, programs: Sequence[str], parameters: Mapping[str, int | str]) -> str:
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
    yield Path(__file__)  # the compiler's flags, and the format of what is kept
    compiler = importlib.util.find_spec("bcc")
    if compiler is not None and compiler.origin is not None:
        yield Path(compiler.origin).with_name("version.py")


def recall_image(name: str) -> Image | None:
    """The image kept under this key, or None."""
    path = _cache_folder() / name
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


def keep_image(name: str, image: Image) -> None:
    """Keep the image, and forget the oldest; nothing happens if there is no room."""
    folder = _cache_folder()
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


class Module(Loaded):
    """The programs and maps of one source file, loaded; a context manager.

    Compiled now, or when they were needed last.
    """

    def __init__(
        self,
        source: str,
        programs: Sequence[str],
        parameters: Mapping[str, int | str],
        entries: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Take xdp/`source` with `parameters` as macros; let these maps have that many `entries`.

        LabError if the kernel rejects it.
        """
        key = cache_key(source, programs, parameters)
        image = recall_image(key)
        if image is None:
            image = compile_image(source, programs, parameters)
            keep_image(key, image)
        try:
            super().__init__(image.sized(entries))
        except OSError as error:
            raise LabError(
                f"xdp/{source} does not load: {error}",
                hint="`lab doctor` shows what the kernel can do",
            ) from error
