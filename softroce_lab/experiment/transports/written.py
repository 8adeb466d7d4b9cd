# SPDX-License-Identifier: GPL-2.0-or-later
"""What a user wrote of transports, in an experiment or on the command line, as `Transport`s."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field, WithJsonSchema, model_validator

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.experiment.transports import policy_file
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.faults.words import Filled
from softroce_lab.inputs import yaml_source
from softroce_lab.inputs.validation import KeyedError, did_you_mean
from softroce_lab.inputs.yaml_source import NOWHERE, Data, Place, Source
from softroce_lab.transports import knobs, registry
from softroce_lab.transports.options import OptionError, Value

MOST_LABEL = 40
"""Characters of a label."""

_WORDS = ("congestion_control", "framing")

_Number: TypeAlias = Annotated[Any, WithJsonSchema({"type": "integer"})]


class TransportSpec(Filled):
    """A transport and its settings. A name alone stands for `{name: NAME}`."""

    elsewhere: ClassVar = {
        "parity": "options: {parity: 2}",
        **{name: f"with settings it is {{name: {name}, ...}}" for name in registry.known()},
    }

    name: str = Field("", description="A built-in transport. An entry has this key or `policy`.")
    policy: str | None = Field(
        None, description="A policy of your own, `FILE:CLASS`. The path is relative to this file."
    )
    label: Annotated[str, Field(min_length=1, max_length=MOST_LABEL)] | None = Field(
        None,
        description=(
            "Name in tables and in the run directory, different for each transport. "
            "Default: the name and all settings, such as `rc+window=128`."
        ),
    )
    congestion_control: str | None = Field(
        None,
        description=(
            "`bdp`, `dcqcn`, `grants`, `nscc` or `swift`. Default: the transport's own; "
            "else `dcqcn` where queues set congestion marks, otherwise `bdp`."
        ),
    )
    framing: str | None = Field(
        None, description="`ud` or `uc_immediate`, if the transport supports both."
    )
    options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="Options that the transport declares."
    )
    # Knobs; each transport has bounds of its own for them.
    window: _Number = Field(None, description="Knob: most packets in flight.")
    paths: _Number = Field(None, description="Knob: UDP source ports of data packets.")
    retry_count: _Number = Field(
        None, description="Knob: retransmissions before the transport gives up."
    )
    timeout: Annotated[Any, WithJsonSchema({"type": "string"})] = Field(
        None, description="Knob: the retransmission timer, or `measured`."
    )
    schedule: Annotated[Any, WithJsonSchema({"enum": list(knobs.SCHEDULES)})] = Field(
        None, description="Knob: which message's packets leave first."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: object) -> object:
        if not isinstance(data, str):
            return data
        return {"policy" if policy_file.is_reference(data) else "name": data}

    @model_validator(mode="after")
    def _fits(self) -> TransportSpec:
        if self.label is not None and not self.label.isprintable():
            raise KeyedError("label", f"{self.label!r} cannot be shown in a table")
        if self.policy is None and not self.name:
            raise UserError("a transport has a name, or a policy", hint=policy_file.EXAMPLE)
        if self.policy is not None and self.name:
            raise KeyedError("name", "'name' beside 'policy'", "label: NAME, for tables")
        return self


def of_file(specs: Iterable[TransportSpec], source: Source) -> tuple[Transport, ...]:
    found: dict[str, Transport] = {}
    for index, spec in enumerate(specs):
        place: Place = ("transports", index)
        transport = one(spec, source, place)
        if transport.label in found:
            what = f"two transports are called {transport.label!r}"
            raise source.error(place, what, hint="give each a label of its own")
        found[transport.label] = transport
    return tuple(found.values())


def of_argument(text: str) -> Transport:
    """A transport of the command line, with its defaults. UserError.

    NAME or FILE:CLASS, behind LABEL= if it is to be called otherwise: two classes of one name.
    """
    label, reference = labelled_argument(text)
    if policy_file.is_reference(reference):
        found = one(TransportSpec(policy=reference), NOWHERE, ())
    else:
        found = Transport.named(reference)
    if label is None:
        return found
    if not label.isprintable() or len(label) > MOST_LABEL:
        raise UserError(f"{label!r} is no label of {MOST_LABEL} characters that can be shown")
    return dataclasses.replace(found, label=label)


def with_settings(text: str) -> Transport:
    """A built-in transport of the command line: NAME[,SETTING=VALUE...]. UserError.

    A setting is a knob, `congestion_control`, `framing`, or an option of the transport.
    """
    name, *settings = text.split(",")
    keys: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals and value):
            raise UserError(f"{setting!r} sets nothing", hint=f"such as {name},window=64")
        if key in keys or key in options:
            raise UserError(f"{key!r} is set twice", hint="leave one out")
        if key in _WORDS:
            keys[key] = value
        else:
            own = keys if key in knobs.NAMES else options
            own[key] = _scalar(key, value)
    return one(TransportSpec(name=name, options=options, **keys), NOWHERE, ())


def _scalar(key: str, text: str) -> Value:
    """A value of the command line, which is read as YAML."""
    value = yaml_source.parse(f"value: {text}").data["value"]
    if not isinstance(value, bool | int | float | str):
        raise UserError(f"{key}: {text!r} is no single value", hint="a number or a word")
    return value


def labelled_argument(text: str) -> tuple[str | None, str]:
    """The label, if there is one, and NAME or FILE:CLASS. A file's name may have a sign, too."""
    label, equals, rest = text.partition("=")
    file, colon, _ = text.rpartition(":")
    is_path = "/" in label or (colon and Path(file).exists())
    if is_path or not (label and equals and rest):
        return None, text
    return label, rest


def labelled(transports: Iterable[Transport]) -> dict[str, Transport]:
    """Transports of the command line by label, each once. UserError for two of one label."""
    found: dict[str, Transport] = {}
    for each in transports:
        if found.setdefault(each.label, each) != each:
            hint = f"give one a label: --transport mine={each.reference}"
            raise UserError(f"two transports are called {each.label!r}", hint=hint)
    return found


def check_real(transports: Iterable[Transport]) -> None:
    """UserError for a transport of the command line that needs the virtual clock."""
    for each in transports:
        if each.entry.virtual_only:
            raise UserError(virtual_alone(each), hint="another transport")


def virtual_alone(transport: Transport) -> str:
    """What is wrong with such a transport on the real clock."""
    return f"{transport.label}: the virtual clock alone has this transport"


def from_folder(written: Data, folder: Path) -> Data:
    """Transports as a file in this folder has them, for a file that is somewhere else."""
    if isinstance(written, list):
        return [from_folder(each, folder) for each in written]
    if isinstance(written, str) and policy_file.is_reference(written):
        return str(folder.absolute() / written)
    if isinstance(written, dict) and isinstance(written.get("policy"), str):
        return {**written, "policy": from_folder(written["policy"], folder)}
    return written


def one(spec: TransportSpec, source: Source, place: Place) -> Transport:
    """The transport that is written there. UserError with the place of what is wrong."""
    own = {} if spec.policy is None else _own(spec.policy, source, (*place, "policy"))
    name = own.pop("name", spec.name)
    if spec.policy is None and name not in registry.known():
        near = did_you_mean(name, registry.known())
        where = (*place, "name") if (*place, "name") in source.values else place
        raise source.error(where, f"unknown transport {name!r}", hint=near)
    entry = Transport(name, name, **own).entry
    control = spec.congestion_control
    if control is not None and control not in (known := _native.congestion_control_names()):
        what, where = f"unknown congestion control {control!r}", (*place, "congestion_control")
        raise source.error(where, what, hint=did_you_mean(control, known))
    _check_framing(spec, entry, source, place)
    try:
        entry.check(spec.options)
    except OptionError as error:
        where = (*place, "options", error.option)
        at_key = error.option not in {option.name for option in entry.options}
        raise source.error(where, error.what, hint=error.hint, at_key=at_key) from None
    set_knobs = _knobs(spec, name, entry, source, place)
    named = (f"{knob}={value}" for knob, value in set_knobs)
    # Options whose values are words stand by themselves.
    options = (v if isinstance(v, str) else f"{o}={v}" for o, v in spec.options.items())
    parts = (name, spec.congestion_control, spec.framing, *options, *named)
    return Transport(
        name,
        spec.label or "+".join(part for part in parts if part is not None),
        spec.congestion_control,
        spec.framing,
        tuple(spec.options.items()),
        set_knobs=set_knobs,
        **own,
    )


def _own(reference: str, source: Source, place: Place) -> dict[str, Any]:
    """Name, file and digest of a user's policy, which is loaded once to see that it can be."""
    try:
        written, name = policy_file.split(reference)
        file = Path(source.file or "").parent.absolute() / written
        own = {"name": name, "file": str(file), "sha256": policy_file.digest(file)}
        policy_file.tried(own["file"], name, own["sha256"])
        policy_file.used(own["file"], name, own["sha256"])
    except UserError as error:
        if error.line is not None:
            raise
        what = error.what if error.file is None else f"{error.file}: {error.what}"
        raise source.error(place, what, hint=error.hint) from None
    return own


def _check_framing(
    spec: TransportSpec, entry: registry.Entry, source: Source, place: Place
) -> None:
    framing = spec.framing
    if framing is not None and framing not in (known := _native.framing_names()):
        what = f"unknown framing {framing!r}"
        raise source.error((*place, "framing"), what, hint=did_you_mean(framing, known))
    if framing is not None and entry.kind != registry.Kind.SESSION:
        what = f"{spec.name} has its own packets, and no framing to choose"
        raise source.error((*place, "framing"), what, hint="leave it out")
    if framing is not None and framing not in entry.framings:
        what = f"{spec.name} does not work over the framing {framing!r}"
        raise source.error((*place, "framing"), what, hint=f"it has {', '.join(entry.framings)}")


def _knobs(
    spec: TransportSpec, name: str, entry: registry.Entry, source: Source, place: Place
) -> tuple[tuple[str, Value], ...]:
    """Those that are set; UserError for one that this transport has not, or a wrong value."""
    given = {each: value for each in knobs.NAMES if (value := getattr(spec, each)) is not None}
    try:
        knobs.Knobs.read(entry.knobs, given)
    except OptionError as error:
        what = error.what.replace("this transport", name)
        at_key = error.option not in {knob.name for knob in entry.knobs}
        raise source.error((*place, error.option), what, hint=error.hint, at_key=at_key) from None
    return tuple(given.items())
