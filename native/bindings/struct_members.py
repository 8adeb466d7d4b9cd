# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes struct_members.cpp: what Python reads of C and C++ headers, for softroce_lab/structs.py.

The names of a struct's members and of an enum's enumerators are read from the headers; the compiler
adds types, sizes and values. So a new member of a struct that is listed here needs no other line.
The build runs it (native/CMakeLists.txt): python struct_members.py REPOSITORY OUTPUT.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Structs and enums, named as in namespace softroce.
HEADERS = {
    "xdp/lab_wire.h": "lab_kind lab_operation_class lab_verb",
    "xdp/lab_fault.h": (
        "lab_effect lab_fault_key lab_fault_model lab_fault_need lab_verdict_slot lab_identity "
        "lab_packet lab_filter lab_window lab_fault_rule lab_fault_set lab_rule_state "
        "lab_fault_state"
    ),
    "xdp/lab_name.h": "lab_name_tuple lab_name_key lab_named",
    "xdp/lab_maps.h": (
        "lab_port_flags lab_port lab_exact_key lab_prefix_key lab_group lab_link lab_tap "
        "lab_backlog lab_timeline lab_counters"
    ),
    "xdp/lab_records.h": "lab_file_header lab_drop lab_stamp",
    "xdp/lab_shape.h": "lab_distribution lab_delay lab_queue lab_shape",
    "native/capture/row.hpp": "capture::PacketRow",
    "native/endpoint/cm_wire.hpp": (
        "cm::Kind cm::Verb cm::LocalGid cm::Hello cm::Parameters cm::Call cm::Reply cm::Event"
    ),
    "native/endpoint/port_wire.hpp": "ports::Request ports::Grant ports::State",
    "native/endpoint/loss_record.hpp": "LossKind LossRecord",
    "native/engine/verbs/qp_event.hpp": "RetransmitReason ParityReason",
    "native/endpoint/recoveries.hpp": "RecoveryKind Recovery",
    "native/endpoint/statistics.hpp": "statistics::Header statistics::Qp",
    "native/monitor/protocol.hpp": "monitor::Word monitor::Request monitor::Answer",
    "native/sim/repairs.hpp": "sim::DropCause sim::Repair",
    "native/sim/link.hpp": "sim::LinkTotals",
    "native/sim/fabric.hpp": "sim::SwitchTotals",
    "native/system/pauses.hpp": "Pause",
    "native/engine/striped/decision.hpp": "Decision",
    "native/wire/figures.hpp": (
        "wire::Histogram wire::LinkFigures wire::PortFigures wire::StageFigures"
    ),
    "native/wire/protocol.hpp": (
        "wire::Operation wire::PortLinks wire::Request wire::Status wire::Answer wire::NoRoom"
    ),
}
CONSTANTS = (
    "LAB_ARMED_RULES LAB_ARMED_SHAPED LAB_ARMED_SLOT LAB_DROPS_MAGIC LAB_FAULT_RULES "
    "LAB_FIRST_SHARE_IFINDEX LAB_GOLDEN LAB_GROUP_PORTS LAB_KIND_BIT_OTHER LAB_KIND_BIT_PARITY "
    "LAB_KIND_BIT_PROBE LAB_KIND_BIT_TAIL LAB_KIND_NONE LAB_NAME_BITS LAB_NAME_TUPLES "
    "LAB_SHAPE_PARTS LAB_SHARES LAB_VERB_SOLICITED cm::kAddress cm::kMostGids cm::kNoAckTimeout "
    "ports::kAddress wire::Histogram::kOctaveBits"
)


def definition(text: str, name: str) -> tuple[str, str]:
    """`enum` or `struct`, and what is between its braces, without comments."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found = re.search(rf"^(enum|struct)(?: class)? {name}\b[^;{{]*\{{", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"struct_members.py: the header has no struct or enum {name}")
    end = text.index("}" if found[1] == "enum" else "\n}", found.end())
    return found[1], text[found.end() : end]


def enumerators(inside: str) -> Iterator[str]:
    """The names in an enum."""
    return (name for each in inside.split(",") if (name := each.partition("=")[0].strip()))


def members(inside: str) -> Iterator[str]:
    """The names of data in a struct. If one is missed here, nothing compiles."""
    while "{" in inside:  # bodies of functions, which end a statement, and initialisers
        inside = re.sub(r"(\)[\w\s]*)?\{[^{}]*\}", lambda found: ";" if found[1] else "", inside)
    for statement in re.sub(r"\[[^\]]*\]|<[^<>]*>", "", inside).split(";"):
        words = statement.split()
        if len(words) > 1 and words[0] != "static" and not {"(", ")"} & set(statement):
            yield from (each.partition("=")[0].split()[-1] for each in statement.split(","))


def described(kind: str, name: str, inside: str) -> str:
    """Statements that add a struct or an enum to what Python sees."""
    if kind == "enum":
        lines = [f'enums["{name}"] = values = nb::dict();']
        for each in enumerators(inside):
            lines.append(f'values["{each}"] = static_cast<long long>({name}::{each});')
    else:
        each = [f"{name}::{member}" for member in members(inside)]
        size = " + ".join(f"sizeof({member})" for member in each)
        types = (
            f'nb::make_tuple("{member.rpartition("::")[2]}", sizeof({member}), '
            f"type_of_member<decltype({member})>())"
            for member in each
        )
        lines = [
            f'static_assert({size} == sizeof({name}), "padding, or a member that was not read");',
            f'structs["{name}"] =',
            f"    nb::make_tuple(sizeof({name}), nb::make_tuple({', '.join(types)}));",
        ]
    return "".join(f"  {line}\n" for line in lines)


def source(root: Path) -> str:
    """The file that is compiled."""
    listed = [
        (name, *definition((root / header).read_text(encoding="utf-8"), name.rpartition("::")[2]))
        for header, names in HEADERS.items()
        for name in names.split()
    ]
    includes = "".join(f'#include "{header}"\n' for header in HEADERS)
    named = (
        f'template <>\nconstexpr const char* kStructName<{name}> = "{name}";\n'
        for name, kind, _ in listed
        if kind == "struct"
    )
    constants = (f'  constants["{name}"] = {name};\n' for name in CONSTANTS.split())
    return (
        "// Written by struct_members.py.\n"
        f'#include "native/bindings/struct_members.hpp"\n{includes}\n'
        f"namespace softroce {{\n\n{''.join(named)}\n"
        "void bind_structs(nb::module_& m) {\n"
        "  nb::dict structs, enums, constants, values;\n"
        + "".join(described(kind, name, inside) for name, kind, inside in listed)
        + "".join(constants)
        + '  m.attr("STRUCTS") = structs;\n  m.attr("ENUMS") = enums;\n'
        '  m.attr("CONSTANTS") = constants;\n}\n\n}  // namespace softroce\n'
    )


if __name__ == "__main__":
    repository, output = Path(sys.argv[1]), Path(sys.argv[2])
    output.write_text(source(repository), encoding="utf-8")
    read = " ".join(str(repository / header) for header in HEADERS)
    Path(f"{output}.d").write_text(f"{output}: {read}\n", encoding="utf-8")
