# SPDX-License-Identifier: GPL-2.0-or-later
"""Keys of experiment, sweep, topology and fault files, from their pydantic models."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from reference import markdown
from reference.markdown import code, prose
from softroce_lab import paths, units
from softroce_lab.experiment import spec
from softroce_lab.experiment.kinds import base as kinds
from softroce_lab.experiment.kinds import collectives, open_loop, training
from softroce_lab.experiment.kinds.jobs import JobSpec, JobsSpec
from softroce_lab.experiment.kinds.programs import CommandSpec, ProgramSpec
from softroce_lab.experiment.kinds.table import Single
from softroce_lab.experiment.spec_model import Expected, ExperimentFile, RunTime, Seeds, StallSpec
from softroce_lab.experiment.sweep.falls import FallsSpec
from softroce_lab.experiment.sweep.spec import SweepFile
from softroce_lab.experiment.sweep.values import RangeSpec
from softroce_lab.experiment.transports.written import TransportSpec
from softroce_lab.faults import drops, model, sentence, words
from softroce_lab.faults.targets import Links, Nodes, Ports
from softroce_lab.sim.presets import CONTEXT_BYTES, RNICS
from softroce_lab.topology import shapes
from softroce_lab.topology.model import (
    EndpointField,
    Graph,
    LinkSpec,
    NodeName,
    NodeSpec,
    TopologyFile,
)

_QUANTITIES: tuple[tuple[Any, str], ...] = (
    (kinds.Bytes, "size, `1MiB`"),
    (kinds.MessageBytes, "size, `1MiB`"),
    (words.Time, "time, `10us`"),
    (words.Length, "time above 0, `10us`"),
    (RunTime, "time above 0, `10ms`"),
    (words.DelayTime, "time, `10us`"),
    (words.Rate, "rate, `100Gbit`"),
    (words.Probability, "percentage, `1%`"),
    (open_loop.Share, "percentage above 0, `60%`"),
    (words.DepthField, "packets or size, `100` or `64KiB`"),
    (drops.Kinds, "kinds of packets"),
    (drops.Opcode, "opcode"),
    (Links, "pattern of links, or a list"),
    (Nodes, "pattern of nodes, or a list"),
    (Ports, "pattern of ports, or a list"),
    (NodeName, "name of a node"),
    (EndpointField, "`node:port`"),
    (shapes.Ratio, "ratio, `2:1`"),
    (kinds.Hosts, "number, or list of names"),
    (Seeds, "number, or list of numbers"),
    (Expected, "conditions by figure"),
    (training._Ppm, "percentage, `1%`"),
)
_SIMPLE = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "value",
    Path: "path",
    Fraction: "number",
}
_OF_SCHEMA = {"string": "text with a unit", "integer": "whole number"}
_IN_WORDS = (words.Compact, TransportSpec, model.FaultRule)


def experiments() -> str:
    """Keys of an experiment file."""
    about = (
        "An experiment is one YAML file. [Run experiments](../howto/experiments.md) explains how "
        "to write and run one. `topology`, `lb`, `mtu` and `faults` are those of a "
        "[topology file](topologies.md)."
    )
    workloads = [*get_args(Single), ProgramSpec, JobsSpec]
    nested = (
        CommandSpec,
        JobSpec,
        training.ParallelSpec,
        open_loop.IncastMixSpec,
        open_loop.RangeSpec,
        open_loop.PointsSpec,
    )
    ready = [(code(name), prose(text)) for name, text in spec.shipped()]
    return markdown.page(
        "Keys of an experiment",
        about,
        _model("The file", ExperimentFile),
        _model("`transports`", TransportSpec),
        _model("`stalls`", StallSpec),
        markdown.section(
            "`workload`",
            "The key `kind` chooses a kind of workload. All kinds have the first keys. Kinds that "
            "repeat an operation also have the second ones.",
            _keys(kinds.WorkloadSpec),
            _keys(kinds.RepeatedSpec, but=kinds.WorkloadSpec),
        ),
        *(_workload(each) for each in workloads),
        *(_model(_title(each), each, level=3) for each in nested),
        _algorithms(),
        _rnics(),
        markdown.section("Built-in experiments", markdown.table(["name", "about"], ready)),
    )


def sweeps() -> str:
    """Keys of a sweep file."""
    about = (
        "A sweep runs one experiment with every combination of chosen values, transports and "
        "seeds. [Experiments and sweeps](../howto/experiments.md) explains the entries of `over`."
    )
    return markdown.page(
        "Keys of a sweep",
        about,
        _model("The file", SweepFile),
        _model("A range in `over`", RangeSpec),
        _model("`falls`", FallsSpec),
    )


def topologies() -> str:
    """Keys of a topology file."""
    about = (
        "A topology file is YAML in containerlab's format. "
        "[Build and break a fabric](../howto/fabric.md) explains how to use one. Links also have "
        "the [keys of faults](faults.md)."
    )
    generators = [
        markdown.section(f"`kind: {_kind(shape)}`", _about(shape), _keys(shape, but=None), level=3)
        for shape in get_args(shapes.Generator)
    ]
    ready = _ready(paths.TOPOLOGIES)
    return markdown.page(
        "Keys of a topology",
        about,
        _model("The file", TopologyFile),
        _model("`topology`", Graph),
        _model("A node", NodeSpec),
        _model("A link", LinkSpec, but=model.LinkImpairments),
        markdown.section("`generator`", "The key `kind` chooses a shape."),
        *generators,
        markdown.section("Built-in topologies", markdown.table(["name", "about"], ready)),
    )


def faults() -> str:
    """Words of faults."""
    about = (
        "These words mean the same in a topology file, in an experiment, in a fault profile and in "
        "`lab fault set`. An effect is written in words (`delay: 10ms 2ms`) or as a map "
        "(`delay: {delay: 10ms, jitter: 2ms}`). In words the values come first, in the order of "
        "the table. A unit is mandatory."
    )
    effects = {
        "`drop`": drops.DropEvent,
        "`loss`": model.Loss,
        "`loss gemodel`": model.GemodelSpec,
        "`loss burst`": model.BurstSpec,
        "`loss periodic`": model.PeriodicSpec,
        "`cut`": model.CutSpec,
        "`corrupt`": model.CorruptSpec,
        "`duplicate`": model.DuplicateSpec,
        "`reorder`": model.ReorderSpec,
        "`rate`": model.QueueSpec,
        "`delay`": model.DelaySpec,
    }
    manners = [
        (code(name), "; ".join(code(f"{key}: {value}".replace("True", "true"))
                               for key, value in stands_for.items()))
        for name, stands_for in sentence.MANNERS.items()
    ]  # fmt: skip
    ready = _ready(paths.FAULTS)
    return markdown.page(
        "Faults",
        about,
        _model("A rule", model.FaultRule, but=model.Impairments),
        markdown.section(
            "Effects",
            "A rule has at least one of these keys. Effects apply in the order of this line: "
            + ", ".join(map(code, model.EFFECTS))
            + ".",
            _keys(model.Impairments),
        ),
        *(_model(title, each, level=3) for title, each in effects.items()),
        _model("Both directions of a link", model.LinkImpairments, but=model.Impairments),
        markdown.section(
            "Sentences",
            "A sentence is a rule in fewer words: `nic` or `port`, the manner, the port, then "
            f"`at`, `for` and `every`. Example: `{sentence.EXAMPLE}`.",
            markdown.table(["manner", "stands for"], manners),
        ),
        markdown.section("Built-in profiles", markdown.table(["name", "about"], ready)),
    )


def _algorithms() -> str:
    rows = [
        (code(operation), ", ".join(map(code, collectives.algorithms(operation))))
        for operation in collectives.OPERATIONS
    ]
    return markdown.section(
        "Operations of `collective`",
        "The first algorithm is the default.",
        markdown.table(["`op`", "`algorithm`"], rows),
        level=3,
    )


def _rnics() -> str:
    rows = [
        (
            code(name),
            str(rnic.cached_contexts or "all"),
            f"{rnic.miss_ns} ns",
            f"{rnic.host_latency_ns} ns",
            f"{rnic.pcie_latency_ns} ns",
            f"{rnic.packets_per_second:,}" if rnic.packets_per_second else "no limit",
            f"{rnic.peer_bytes} B" if rnic.peer_bytes else "none: the host's software has it",
        )
        for name, rnic in RNICS.items()
    ]
    head = ["name", "contexts that fit", "a miss", "host latency", "PCIe latency",
            "packets a second", "state of a peer"]  # fmt: skip
    about = (
        "Latencies and rates are those of one direction. A context of a queue pair takes "
        f"{CONTEXT_BYTES} bytes. A miss delays the packets behind it."
    )
    return markdown.section("`rnic`", about, markdown.table(head, rows))


def _workload(each: type[BaseModel]) -> str:
    common = kinds.RepeatedSpec if issubclass(each, kinds.RepeatedSpec) else kinds.WorkloadSpec
    return markdown.section(
        f"`kind: {_kind(each)}`", _about(each), _keys(each, but=common), level=3
    )


def _model(
    title: str, each: type[BaseModel], *, level: int = 2, but: type[BaseModel] | None = None
) -> str:
    return markdown.section(title, _about(each), _keys(each, but=but), level=level)


def _title(each: type[BaseModel]) -> str:
    titles = {
        CommandSpec: "A command of `commands`",
        JobSpec: "A job of `jobs`",
        training.ParallelSpec: "`parallel`",
        open_loop.IncastMixSpec: "`incast` of `open-loop`",
        open_loop.RangeSpec: "A range of `sizes`",
        open_loop.PointsSpec: "Points of `sizes`",
    }
    return titles[each]


def _kind(each: type[BaseModel]) -> str:
    return str(get_args(each.model_fields["kind"].annotation)[0])


def _about(each: type[BaseModel]) -> str:
    text = inspect.getdoc(each) or ""
    if text == "The whole file.":
        return ""
    return "\n\n".join(prose(part) for part in text.split("\n\n"))


def _ready(folder: Path) -> list[tuple[str, str]]:
    """Built-in files: (name, what it is about)."""
    return [(code(file.stem), prose(_comment(file))) for file in sorted(folder.glob("*.yaml"))]


def _comment(file: Path) -> str:
    """The first sentence of the comment that a file begins with."""
    comment = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if "SPDX" not in line:
            comment.append(line.lstrip("# "))
    return " ".join(comment).partition(". ")[0].rstrip(".")


def _keys(each: type[BaseModel], *, but: type[BaseModel] | None = None) -> str:
    """A table of a model's keys, without those of `but`."""
    left_out = set(but.model_fields) if but is not None else set()
    hints = typing.get_type_hints(each, include_extras=True)
    rows = [
        (code(field.alias or name), _type(hints[name]), prose(field.description or ""),
         _default(field, hints[name]))
        for name, field in each.model_fields.items()
        if name not in left_out and name != "kind"
    ]  # fmt: skip
    if "kind" in each.model_fields and not hasattr(each, "build") and but is None:
        rows = [row for row in rows if row[0] != "`kind`"]
    if each is NodeSpec:
        field = each.model_fields["kind"]
        kind_row = (code("kind"), _type(hints["kind"]), prose(field.description or ""), "")
        rows.insert(0, kind_row)
    return markdown.table(["key", "type", "meaning", "default"], rows) if rows else ""


def _default(field: Any, hint: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is PydanticUndefined or value is None or isinstance(value, BaseModel) or value == "":
        return ""
    return code(_shown(value, _type(hint)))


def _shown(value: Any, kind: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, int) and kind.startswith("time"):
        return units.format_duration(value)
    if isinstance(value, int) and kind.startswith("size"):
        return units.format_bytes(value)
    return str(value)


def _type(hint: Any) -> str:
    for known, name in _QUANTITIES:
        if _is(hint, known):
            return name
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return _bounded(arguments[0], arguments[1:])
    if origin is Literal:
        return ", ".join(code(str(each)) for each in arguments)
    if origin in (Union, types.UnionType):
        names = [_type(each) for each in arguments if each is not type(None)]
        return ", or ".join(dict.fromkeys(names))
    if origin in (list, tuple):
        return f"list of: {_type(arguments[0])}"
    if origin is dict:
        return f"map to: {_type(arguments[1])}"
    is_in_words = inspect.isclass(hint) and issubclass(hint, _IN_WORDS)
    return "words, or keys and values" if is_in_words else "keys and values"


def _is(hint: Any, known: Any) -> bool:
    """Whether a type is this one, or this one with more conditions."""
    marks = getattr(known, "__metadata__", None)
    if marks is None or not hasattr(hint, "__metadata__"):
        return bool(hint == known)
    same = hint.__origin__ == known.__origin__
    return bool(same and hint.__metadata__[: len(marks)] == marks)


def _bounded(inner: Any, marks: Iterable[Any]) -> str:
    bounds = []
    for mark in marks:
        schema = getattr(mark, "json_schema", None) or {}
        if "enum" in schema:
            return ", ".join(map(code, schema["enum"]))
        if schema.get("type") in _OF_SCHEMA and inner in (Any, int):
            return _OF_SCHEMA[schema["type"]]
        for part in (mark, *getattr(mark, "metadata", ())):
            least, most = getattr(part, "ge", None), getattr(part, "le", None)
            bounds += [f"from {least:,}"] if least is not None else []
            bounds += [f"to {most:,}"] if most is not None else []
    kind = "list of numbers" if get_origin(inner) is tuple else _type(inner)
    return " ".join([kind, *bounds])
