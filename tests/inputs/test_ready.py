# SPDX-License-Identifier: GPL-2.0-or-later
"""Which file a word on the command line means."""

from pathlib import Path

import pytest

from softroce_lab.errors import UserError
from softroce_lab.inputs.ready import find


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the ready topology `ring`; the current folder is an empty one beside it."""
    ready, here = tmp_path / "ready", tmp_path / "here"
    ready.mkdir()
    here.mkdir()
    (ready / "ring.yaml").touch()
    monkeypatch.chdir(here)
    return ready


def test_a_bare_name_is_a_ready_one(folder: Path) -> None:
    assert find("ring", folder, "topology") == folder / "ring.yaml"


def test_the_current_folder_comes_first(folder: Path) -> None:
    Path("ring.yaml").touch()
    assert find("ring", folder, "topology") == Path("ring.yaml")
    Path("ring").touch()
    assert find("ring", folder, "topology") == Path("ring")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("mine.yaml", "did you mean 'mime.yaml'?"),
        ("./mine.yaml", "did you mean 'mime.yaml'?"),
        ("rng.yaml", "did you mean 'ring', a ready topology?"),
        ("a/ring", "did you mean 'ring', a ready topology?"),
        ("other.yaml", "a file, or a ready topology by its name: ring"),
    ],
)
def test_a_path_to_nothing_is_refused_with_the_nearest(folder: Path, path: str, hint: str) -> None:
    Path("mime.yaml").touch()
    with pytest.raises(UserError, match="cannot be read: No such file or directory") as caught:
        find(path, folder, "topology")
    assert caught.value.hint == hint
    assert caught.value.file == str(Path(path))


@pytest.mark.parametrize(
    ("word", "hint"), [("rng", "did you mean 'ring'?"), ("zzz", "known: ring")]
)
def test_an_unknown_name_lists_the_known(folder: Path, word: str, hint: str) -> None:
    with pytest.raises(UserError, match=f"no topology called '{word}'") as caught:
        find(word, folder, "topology")
    assert caught.value.hint == hint
