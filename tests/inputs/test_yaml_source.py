# SPDX-License-Identifier: GPL-2.0-or-later
"""YAML with places: what is read, where it stood, and what is refused."""

import os
from pathlib import Path

import pytest

from softroce_lab.errors import UserError
from softroce_lab.inputs import yaml_source


def test_scalars_follow_yaml_1_2() -> None:
    text = "{a: 1, b: 0x10, c: yes, d: 1:30, e: 1.5, f: null, g: true, h: '1', i: 2001-01-01}"
    assert yaml_source.parse(text).data == {
        "a": 1, "b": 16, "c": "yes", "d": "1:30", "e": 1.5, "f": None, "g": True, "h": "1",
        "i": "2001-01-01",
    }  # fmt: skip


def test_a_number_with_a_point_remembers_how_it_was_written() -> None:
    written = yaml_source.parse("a: [6.10, 1_0.5]").data["a"]
    assert written == [6.1, 10.5]
    assert isinstance(written, list)
    assert [str(each) for each in written] == ["6.10", "1_0.5"]


def test_keys_and_values_have_places() -> None:
    source = yaml_source.parse("# a comment\na:\n  - b:  [1, 2]\n", "x.yaml")
    assert source.keys[("a", 0, "b")] == (3, 5)
    assert source.values[("a", 0, "b", 1)] == (3, 13)


def test_an_error_about_what_is_not_in_the_file_points_at_the_nearest_that_is() -> None:
    source = yaml_source.parse("a:\n  b: {c: 1}\n", "x.yaml")
    assert str(source.error(("a", "b", "d", 5), "bad")) == "x.yaml:2:6: bad"
    assert str(source.error(("a", "tag", "b", "c"), "bad")) == "x.yaml:2:10: bad"


def test_an_error_stays_readable_whatever_it_quotes() -> None:
    source = yaml_source.parse("a: 1\n", "x.yaml")
    assert len(source.error(("a",), "x" * 10**6).what) == yaml_source.MAX_COMPLAINT


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "x.yaml: is empty"),
        ("text", "x.yaml:1:1: the file holds text, not keys and values"),
        ("a: 'x\n", "x.yaml:2:1: broken YAML: found unexpected end of stream, while scanning a "
                    "quoted scalar that began in line 1"),
        ("a: 1\n  b: 2\n", "x.yaml:2:4: broken YAML: mapping values are not allowed here"),
        ("a: 1\n\tb: 2\n", "x.yaml:2:1: broken YAML: found character '\\t' that cannot start any"),
        (" a: 1\nb: 2\n", "x.yaml:2:1: broken YAML: expected '<document start>', but found "
         "'<block mapping start>'\n  hint: check the indentation: all keys"),
        ("a: *x\n", "x.yaml:1:4: broken YAML: found undefined alias 'x'"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: broken YAML: but found another document"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3:1: duplicate key 'a'\n  hint: it stands in line 1"),
        ("a: !python/object x\n", "x.yaml:1:4: the tag !python/object is not supported"),
        ("? [a]\n: b\n", "x.yaml:1:3: a key must be plain text"),
        ("a: &x [*x]\n", "x.yaml:1:4: nested more than 32 deep"),
        ("a: " + "[" * 40 + "]" * 40, "x.yaml:1:36: nested more than 32 deep"),
        (BOMB, "x.yaml:1:13: the file expands to more than 200000 values"),
    ],
)  # fmt: skip
def test_broken(text: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        yaml_source.parse(text, "x.yaml")
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a: *<->*\n", "put quotes around"),
        ("a: %x\n", "put quotes around"),
        ("a: 1\n\tb: 2\n", "spaces, not with tabs"),
        ("a: b: c\n", "needs quotes"),
    ],
)
def test_the_hint_fits_the_mistake(text: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        yaml_source.parse(text)
    assert hint in (caught.value.hint or "")


def test_read(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("\ufeffa: \u00e9\n", encoding="utf-8")
    assert yaml_source.read(file).data == {"a": "\u00e9"}


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        yaml_source.read(path)
    return str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    assert refusal(path) == f"{path}: cannot be read: No such file or directory"


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    os.mkfifo(path)
    assert refusal(path) == f"{path}: is not a regular file"


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\x01\0\0", b"a: \xff\xfe", b"a: b\0c"])
def test_a_binary_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    assert refusal(path) == f"{path}: is not a text file in UTF-8"


def test_a_huge_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    assert refusal(path) == f"{path}: is larger than 1 MiB"
