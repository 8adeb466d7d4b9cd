# SPDX-License-Identifier: GPL-2.0-or-later
"""A MessageConfig as text and back, and the digest of what two ends must have in common."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native

MessageConfig, SessionTiming = _native.MessageConfig, _native.SessionTiming

SHARED = {
    "transport", "carries_operations", "path_mtu", "paths", "message_slots", "first_message_id",
    "connection_epoch", "path_probes", "without", "framing", "carries_payload",
    "code_chunk_packets", "codes", "congestion_control", "window_packets", "options",
}  # fmt: skip
"""Attributes that the digest covers."""
FORMS = (False, True)  # values of `one_line`


def settable(kind):
    """The names of the attributes that Python can set."""
    return [
        name
        for name, each in vars(kind).items()
        if isinstance(each, property) and each.fset is not None
    ]


def values(config):
    """All that Python can set: by attribute, those of `timing` as `timing.NAME`."""
    of_config = {name: getattr(config, name) for name in settable(MessageConfig)}
    timing = of_config.pop("timing")
    of_timing = {f"timing.{name}": getattr(timing, name) for name in settable(SessionTiming)}
    return of_config | of_timing


def another(value, number):
    """A value that the attribute has not now; numbers differ from attribute to attribute."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + number
    if isinstance(value, str):
        return f"{value}-{number}"
    if isinstance(value, list):
        return [(32, 8), (number, 1)]
    return {"truth": True, "count": -number, "share": 0.1 + number, "whole": 2.0, "word": "2"}


def put(config, name, value):
    target, _, attribute = name.rpartition(".")
    setattr(config.timing if target else config, attribute, value)


def changed():
    """A configuration in which no attribute has its default."""
    config = MessageConfig()
    for number, (name, value) in enumerate(values(config).items(), 1):
        put(config, name, another(value, number))
    return config


def reread(config, one_line=False):
    return MessageConfig.from_text(config.text(one_line), one_line)


def test_the_text_has_everything_that_python_can_set():
    names = [line.split()[0] for line in MessageConfig().text().splitlines()]
    assert sorted(names) == sorted(set(values(MessageConfig())) - {"options"})


@pytest.mark.parametrize("one_line", FORMS)
def test_every_attribute_makes_the_round_trip(one_line):
    config, default = changed(), values(MessageConfig())
    wanted = values(config)
    assert [name for name, value in wanted.items() if value == default[name]] == []
    assert values(reread(config, one_line)) == wanted
    assert values(reread(MessageConfig(), one_line)) == default


@pytest.mark.parametrize("address", [0x0A000001, 0xFD00 << 112 | 1, (1 << 128) - 1])
def test_addresses_of_both_kinds(address):
    config = MessageConfig()
    config.address = address
    assert reread(config).address == address


@given(
    st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", exclude_characters=',"', min_codepoint=0x21,
                            max_codepoint=0x7E), min_size=1)
)  # fmt: skip
def test_an_option_keeps_its_value_and_its_type(value):
    config = MessageConfig()
    config.options = {"it": value}
    for one_line in FORMS:
        found = reread(config, one_line).options["it"]
        assert (type(found), found) == (type(value), value)


def test_one_line_is_one_word_for_a_shell():
    line = changed().text(one_line=True)
    assert not set(line) & set(" \n\t;'\\$")
    assert line.startswith("transport=policy-")


NUMBER = "is not a whole number from 0 to"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("colour blue\n", "'colour' is not a setting of the engine"),
        ("\n", "'' is not a setting of the engine"),
        ("timing.colour 1\n", "'timing.colour' is not a setting"),
        ("options. 1\n", "'options.' is not a setting"),
        ("options.a-b 1\n", "'options.a-b' is not a setting"),
        ("paths=8\n", "'paths=8' is not a setting"),
        ("paths 8 \n", f"paths: '8 ' {NUMBER} 4294967295"),
        ("paths\n", f"paths: '' {NUMBER} 4294967295"),
        ("paths -1\n", f"paths: '-1' {NUMBER}"),
        ("paths 0x8\n", f"paths: '0x8' {NUMBER}"),
        ("paths 4294967296\n", f"paths: '4294967296' {NUMBER}"),
        ("connection_epoch 256\n", f"connection_epoch: '256' {NUMBER} 255"),
        ("timeout_ns -1\n", f"timeout_ns: '-1' {NUMBER} 9223372036854775"),
        ("timeout_ns 9223372036854776\n", f"timeout_ns: '9223372036854776' {NUMBER}"),
        ("timing.t_min_ns 1.5\n", "timing.t_min_ns: '1.5' is not a whole number"),
        ("path_probes 1\n", "path_probes: '1' is not true or false"),
        ("transport two words\n", "transport: 'two words' is not a text without spaces"),
        ("framing \n", "framing: '' is not a text without spaces"),
        ("address 10.0.0.1\n", "address: '10.0.0.1' is not a GID of 32 hexadecimal digits"),
        (f"address {'0' * 31}g\n", "is not a GID"),
        ("codes 32\n", "codes: '32' is not codes such as 32+8/16+8, or none"),
        ("codes 32+8/\n", "codes: '32+8/' is not codes"),
        ("codes \n", "codes: '' is not codes"),
        ("codes 32+8+1\n", "codes: '32+8+1' is not codes"),
        ("options.x word\n", "options.x: 'word' is not true, false, a number, or a text in double"),
        ("options.x \"\"\n", "options.x: '\"\"' is not"),
        ("options.x inf\n", "options.x: 'inf' is not"),
        ("options.x \n", "options.x: '' is not"),
        ("paths 8\ncolour blue\n", "'colour' is not a setting"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_by_its_name(text, why):
    with pytest.raises(ValueError, match="is not") as caught:
        MessageConfig.from_text(text)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("paths=8,colour=blue", "'colour' is not a setting of the engine"),
        ("paths=8,,framing=ud", "'' is not a setting"),
        ("paths 8", "'paths 8' is not a setting"),
        ("paths=8 ", f"paths: '8 ' {NUMBER} 4294967295"),
        ("paths=8\n", f"paths: '8\n' {NUMBER}"),
        ("paths", f"paths: '' {NUMBER}"),
        ("paths==8", f"paths: '=8' {NUMBER}"),
        ("options.x=word", "options.x: 'word' is not true, false"),
    ],
)
def test_a_wrong_word_of_one_line_is_refused_by_its_name(line, why):
    with pytest.raises(ValueError, match="is not") as caught:
        MessageConfig.from_text(line, one_line=True)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"transport": "two words"},
        {"framing": ""},
        {"schedule": "a,b"},
        {"options": {"x": 'a"b'}},
        {"options": {"x": "a\nb"}},
        {"options": {"x": math.inf}},
        {"options": {"x": math.nan}},
    ],
)
def test_a_value_that_cannot_be_written_is_refused(change):
    config = MessageConfig()
    for name, value in change.items():
        setattr(config, name, value)
    with pytest.raises(ValueError, match=r"cannot be written|no finite number"):
        config.text()


def test_the_digest_covers_what_both_ends_must_have_in_common():
    before = MessageConfig()
    covered = set()
    for number, (name, value) in enumerate(values(before).items(), 1):
        config = MessageConfig()
        put(config, name, another(value, number))
        assert reread(config).digest == config.digest
        if config.digest != before.digest:
            covered.add(name)
    assert covered == SHARED
