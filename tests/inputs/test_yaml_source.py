# SPDX-License-Identifier: GPL-2.0-or-later
"""YAML with places: what is read, where it stood, and what is refused."""

import copy
import os
import pickle
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from softroce_lab.errors import UserError
from softroce_lab.inputs import yaml_source

ROOT = Path(__file__).resolve().parents[2]


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


def test_keys_are_text_as_written() -> None:
    assert yaml_source.parse("{1: a, true: b, ~: c}").data == {"1": "a", "true": "b", "~": "c"}


def test_keys_and_values_have_places() -> None:
    source = yaml_source.parse("# a comment\na:\n  - b:  [1, 2]\n", "x.yaml")
    assert source.keys[("a", 0, "b")] == (3, 5)
    assert source.values[("a", 0, "b", 1)] == (3, 13)


def test_an_error_points_at_the_value_or_at_its_key() -> None:
    source = yaml_source.parse("a: 1\nb: 2\n", "x.yaml")
    assert str(source.error(("b",), "bad")) == "x.yaml:2:4: bad"
    assert str(source.error(("b",), "bad", at_key=True)) == "x.yaml:2:1: bad"


def test_an_error_about_what_is_not_in_the_file_points_at_the_nearest_that_is() -> None:
    source = yaml_source.parse("a:\n  b: {c: 1}\n", "x.yaml")
    assert str(source.error(("a", "b", "d", 5), "bad")) == "x.yaml:2:6: bad"
    assert str(source.error(("a", "tag", "b", "c"), "bad")) == "x.yaml:2:10: bad"


def test_an_error_stays_readable_whatever_it_quotes() -> None:
    source = yaml_source.parse("a: 1\n", "x.yaml")
    assert len(source.error(("a",), "x" * 10**6).what) == yaml_source.MAX_COMPLAINT


def test_aliases_are_expanded() -> None:
    assert yaml_source.parse("a: &x [1]\nb: *x\n").data == {"a": [1], "b": [1]}


def test_an_anchor_may_be_set_anew_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert yaml_source.parse("a: &x 1\nb: &x 2\nc: *x\n").data == {"a": 1, "b": 2, "c": 2}


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "x.yaml: is empty"),
        ("# only a comment\n", "x.yaml: is empty"),
        ("- a\n- b\n", "x.yaml:1:1: the file holds a list, not keys and values"),
        ("text", "x.yaml:1:1: the file holds text, not keys and values"),
        ("a: 'x\n", "x.yaml:2:1: broken YAML: found unexpected end of stream, while scanning a "
                    "quoted scalar that began in line 1"),
        ("a: [1\nb: 2\n", "x.yaml:2:2: broken YAML: expected ',' or ']', but got ':', while "
                          "parsing a flow sequence that began in line 1"),
        ("a: 1\n  b: 2\n", "x.yaml:2:4: broken YAML: mapping values are not allowed here"),
        ("a: 1\n\tb: 2\n", "x.yaml:2:1: broken YAML: found character '\\t' that cannot start any"),
        (" a: 1\nb: 2\n", "x.yaml:2:1: broken YAML: expected '<document start>', but found "
         "'<block mapping start>'\n  hint: check the indentation: all keys"),
        ("a: *x\n", "x.yaml:1:4: broken YAML: found undefined alias 'x'"),
        ("a: *<->*\n", "x.yaml:1:4: broken YAML: found undefined alias '<->*'"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: broken YAML: but found another document"),
        ("a: 1\nb: \x07\n", "x.yaml:2:4: character '\\x07' is not allowed in YAML"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3:1: duplicate key 'a'\n  hint: it stands in line 1"),
        ("a: !python/object x\n", "x.yaml:1:4: the tag !python/object is not supported"),
        ("a: !!binary eA==\n", "x.yaml:1:4: the tag tag:yaml.org,2002:binary is not supported"),
        ("? [a]\n: b\n", "x.yaml:1:3: a key must be plain text"),
        ("a: &x [*x]\n", "x.yaml:1:4: nested more than 32 deep"),
        ("a: " + "[" * 40 + "]" * 40, "x.yaml:1:36: nested more than 32 deep"),
        ("[" * 50_000, "x.yaml: is nested more than 32 deep"),
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


def test_a_monstrous_number_stays_text() -> None:
    assert yaml_source.parse("a: 0x" + "f" * 6000).data == {"a": "0x" + "f" * 6000}


def test_random_texts_parse_or_are_refused() -> None:
    alphabet = "abc :-,[]{}&*!|>'\"%@`#?\n\t\r 1.0e5~<<\\\x85\u2028\ufeff\u00e9"
    for seed in range(3000):
        rng = random.Random(seed)
        text = "".join(rng.choices(alphabet, k=rng.randint(1, 25)))
        try:
            data = yaml_source.parse(text, "x.yaml").data
        except UserError:
            continue
        assert isinstance(data, dict), f"seed {seed}"


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


def test_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_name_with_a_nul(tmp_path: Path) -> None:
    assert re.search("cannot be read: .*embedded null", refusal(tmp_path / "a\0b"))


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


def test_a_file_of_just_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: 1\n#".ljust(yaml_source.MAX_FILE_BYTES, b"x"))
    assert yaml_source.read(path).data == {"a": 1}


def test_a_file_without_permission(tmp_path: Path) -> None:
    """Root may read everything, so another user tries."""
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n")
    path.chmod(0)
    tmp_path.chmod(0o755)
    program = (
        "import os, sys, pathlib\n"
        "from softroce_lab.inputs import yaml_source\n"
        "from softroce_lab.errors import UserError\n"
        "os.chdir(sys.argv[1])\n"
        "if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: yaml_source.read(pathlib.Path('x.yaml'))\n"
        "except UserError as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout == "x.yaml: cannot be read: Permission denied\n"


def test_a_number_is_copied_with_its_text():
    source = yaml_source.parse("version: 6.10")
    for again in (copy.deepcopy(source), pickle.loads(pickle.dumps(source))):  # noqa: S301
        assert str(again.data["version"]) == "6.10"
