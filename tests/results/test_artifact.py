# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results pack`: from the unzipped folder alone the run comes out the same, or not."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from typer.testing import CliRunner

from softroce_lab import paths
from softroce_lab.cli.app import app
from softroce_lab.errors import UserError
from softroce_lab.experiment import code_version
from softroce_lab.results import artifact
from softroce_lab.results.page import assemble
from softroce_lab.results.recorded import Recorded


@pytest.fixture
def run(ring_run, tmp_path):
    """A copy whose manifest can be changed."""
    shutil.copytree(ring_run, tmp_path / "ring")

    def changed(**facts):
        path = tmp_path / "ring" / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["environment"] |= facts.pop("environment", {})
        path.write_text(json.dumps(manifest | facts))
        return Recorded(tmp_path / "ring")

    return changed


def unzipped(made, folder):
    with zipfile.ZipFile(made.path) as archive:
        archive.extractall(folder)
    return folder


def reproduce(folder, tmp_path):
    lab = tmp_path / "lab"
    lab.write_text(f'#!/bin/sh\nexec {sys.executable} -m softroce_lab.cli "$@"\n')
    lab.chmod(0o755)
    environment = os.environ | {
        "LAB": "two-hosts",
        "LAB_PROGRAM": str(lab),
        "PYTHONPATH": str(paths.PROJECT_ROOT),
    }
    return subprocess.run(
        ["sh", str(folder / "reproduce.sh"), "-q"],
        cwd="/", env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_it_is_reproduced_from_the_unzipped_folder(run, tmp_path):
    made = artifact.write(run(environment={"commit": None}), tmp_path / "ring.zip")
    assert (made.commit, "installed softroce_lab" in made.note) == (None, True)
    folder = unzipped(made, tmp_path / "here")
    shutil.rmtree(tmp_path / "ring")
    done = reproduce(folder, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("same: again/")
    links = folder / "run" / "links.json"
    links.write_text(links.read_text() + " ")
    done = reproduce(folder, tmp_path)
    assert done.returncode == 1
    assert "different  links.json" in done.stdout


def test_what_is_in_it(run, tmp_path):
    recorded = run(environment={"commit": None})
    (recorded.path / "trace.pcapng").write_bytes(b"packets")
    made = artifact.write(recorded, tmp_path / "one.zip")
    again = artifact.write(recorded, tmp_path / "two.zip")
    assert made.path.read_bytes() == again.path.read_bytes()
    with zipfile.ZipFile(made.path) as archive:
        names = archive.namelist()
        readme = archive.read("README.md").decode()
    assert {"reproduce.sh", "run/experiment.json", "run/manifest.json"} < set(names)
    assert "run/trace.pcapng" not in names
    assert "byte for byte" in readme
    assert "There is no code" in readme
    assert not list(tmp_path.glob(".*zip*"))


def test_packed_code_knows_its_commit_and_whether_it_was_changed(run, tmp_path, monkeypatch):
    commit = (code_version.commit() or "").removesuffix("-dirty")
    if not commit:
        pytest.skip("this is no checkout")
    made = artifact.write(run(environment={"commit": commit}), tmp_path / "with.zip")
    folder = unzipped(made, tmp_path / "with")
    assert f"commit {commit}" in (folder / "README.md").read_text()
    code = folder / "code"
    assert (made.commit, (code / "lab").is_file()) == (commit, True)
    monkeypatch.setattr(code_version, "PROJECT_ROOT", code)
    assert code_version.commit() == code_version.name() == commit
    (code / "new").touch()
    assert code_version.commit() == commit
    with (code / "softroce_lab" / "units.py").open("a") as file:
        file.write("# changed\n")
    assert code_version.commit() == f"{commit}-dirty"
    (code / code_version.PACKED).unlink()
    assert code_version.commit() is None


def test_nothing_tells_the_folder_of_the_author(run, tmp_path):
    recorded = run(environment={"commit": None, "file": "/home/ada/work/mine.yaml"})
    made = artifact.write(recorded, tmp_path / "one.zip")
    with zipfile.ZipFile(made.path) as archive:
        texts = [archive.read(name) for name in archive.namelist()]
    assert b"- file: mine.yaml\n" in b"".join(texts)
    texts.append(assemble.page(recorded).encode())
    assert b"mine.yaml" in texts[-1]
    assert not [text for text in texts if b"/home/ada" in text]


@pytest.mark.skipif(shutil.which("unzip") is None, reason="needs unzip")
def test_the_command_says_how_to_repeat_it(run, tmp_path, monkeypatch):
    """What it prints is run as it is, beside other files of the reviewer's."""
    recorded = run(environment={"commit": None})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("mine")
    done = CliRunner().invoke(app, ["results", "pack", str(recorded.path), "-o", "some run.zip"])
    command = done.stdout.splitlines()[-1].strip()
    before, repeat = command.split(" && ")
    subprocess.run(["sh", "-c", before], cwd=tmp_path, check=True, capture_output=True)
    assert repeat == "sh 'some run'/reproduce.sh"
    assert (tmp_path / "some run" / "reproduce.sh").is_file()
    assert (tmp_path / "README.md").read_text() == "mine"


def test_code_that_no_commit_has(run, tmp_path):
    made = artifact.write(run(environment={"commit": "12ab-dirty"}), tmp_path / "a.zip")
    assert "changes that no commit has" in made.note
    made = artifact.write(run(environment={"commit": "0" * 40}), tmp_path / "b.zip")
    assert "does not have the commit" in made.note


def test_what_cannot_be_packed(run, tmp_path):
    with pytest.raises(UserError, match="no whole result"):
        artifact.write(run(state="interrupted"), tmp_path / "a.zip")
    recorded = run(state="done")
    with pytest.raises(UserError, match="cannot write"):
        artifact.write(recorded, tmp_path / "nowhere" / "a.zip")
    (recorded.path / "experiment.json").unlink()
    with pytest.raises(UserError, match=r"experiment\.json is missing"):
        artifact.write(recorded, tmp_path / "a.zip")
    assert not list(tmp_path.glob("*.zip"))


def test_what_lies_elsewhere_is_not_packed(run, tmp_path):
    """Packed as root, a link would hand any file to the user whose run it is."""
    recorded = run()
    (tmp_path / "secret.json").write_text("{}")
    (recorded.path / "more.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(UserError, match="is a link to"):
        artifact.write(recorded, tmp_path / "made.zip")
    assert [*tmp_path.glob("*.zip*"), *tmp_path.glob(".*")] == []
