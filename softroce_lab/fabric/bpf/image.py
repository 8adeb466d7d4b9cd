# SPDX-License-Identifier: GPL-2.0-or-later
"""Compiled XDP programs with the shapes of their maps: bytes to keep, and to load again.

Loading needs no compiler and creates everything: maps of these shapes, then programs whose
references are to those maps.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from softroce_lab.fabric.bpf import libbpf

_INSTRUCTION = struct.Struct("=BBhi")  # struct bpf_insn: code, registers, offset, immediate
_LOAD_64 = 0x18  # BPF_LD | BPF_IMM | BPF_DW, two instructions long
_MAP_FD = 1  # BPF_PSEUDO_MAP_FD, in the upper half of the registers


@dataclasses.dataclass(frozen=True, slots=True)
class MapShape:
    """The parameters of a map for the kernel."""

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
    """A compiled source file."""

    maps: tuple[MapShape, ...]
    programs: tuple[Program, ...]

    def sized(self, entries: Mapping[str, int]) -> Image:
        """With so many entries in these maps."""
        maps = {shape.name: shape for shape in self.maps}
        for name, count in entries.items():
            maps[name] = dataclasses.replace(maps[name], max_entries=count)
        return dataclasses.replace(self, maps=tuple(maps.values()))

    def pack(self) -> bytes:
        """As bytes, to keep."""
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
        """Close all descriptors."""
        for fds in (self._maps, self._programs):
            while fds:
                os.close(fds.popitem()[1])

    def pin(self, bpffs: Path, maps: Sequence[str]) -> None:
        """Pin the programs and these maps in `bpffs` under their names."""
        fds = {name: self._maps[name] for name in maps} | self._programs
        for name, fd in fds.items():
            libbpf.pin(fd, bpffs / name)
