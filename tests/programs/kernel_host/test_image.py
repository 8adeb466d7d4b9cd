# SPDX-License-Identifier: GPL-2.0-or-later
import os
import struct
import subprocess
import sys

import pytest

from softroce_lab.errors import EnvironmentLackError, RunError
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.programs.kernel_host import image


@pytest.fixture
def no_images(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_what_is_not_built_is_not_found(no_images):
    assert image.find("6.1") is None
    assert image.remove(print) == 0
    assert not list(no_images.iterdir())


@pytest.fixture
def images(no_images):
    """A cache with an image in it."""
    folder = image.cache()
    (folder / "bookworm-0").mkdir(parents=True)
    (folder / "bookworm-0/root.ext4").write_bytes(b"x" * 8192)
    (folder / "accelerator-0").write_text("kvm")
    return folder


def test_what_is_removed_leaves_the_lock(images):
    """Who waits for that lock and who opens it anew wait for the same one."""
    (images / image._LOCK).touch()
    lock = (images / image._LOCK).stat().st_ino
    assert image.remove(print) >= 8192
    assert [path.name for path in images.iterdir()] == [image._LOCK]
    assert (images / image._LOCK).stat().st_ino == lock


def test_nothing_is_removed_while_one_is_built(images, monkeypatch):
    monkeypatch.setattr(image, "_WAIT_S", 0.3)
    output = []
    with image._alone(output.append), pytest.raises(RunError, match="lock stays locked"):
        image.remove(output.append)
    assert (images / "bookworm-0/root.ext4").is_file()
    assert len(output) == 1


def test_what_a_link_in_the_cache_leads_to_is_not_removed(images, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    (images / "link").symlink_to(other)
    image.remove(print)
    assert (other / "kept").is_file()
    assert not (images / "link").is_symlink()


@pytest.mark.parametrize("mount", ["bookworm-0", "bookworm-0/root"])
def test_what_is_mounted_in_the_cache_is_not_removed(images, mount):
    (images / mount).mkdir(exist_ok=True)
    script = """
        mount -t tmpfs none "$1" && touch "$1/kept" || exit 7
        "$2" -c "from softroce_lab.programs.kernel_host import image; image.remove(print)"
        test -f "$1/kept"
    """
    command = ["unshare", "--mount", "sh", "-c", script, "sh", images / mount, sys.executable]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "RunError: rm failed" in done.stderr


def test_a_cache_that_is_not_ours_alone_is_refused(images, tmp_path):
    images.chmod(0o777)
    for call in (lambda: image.remove(print), lambda: image.prepare("6.1", print)):
        with pytest.raises(RunError, match="others may write") as raised:
            call()
        assert "chmod go-w" in raised.value.hint
    images.chmod(0o700)
    os.chown(images, 65534, -1)
    with pytest.raises(RunError, match="is not yours"):
        image.remove(print)
    assert (images / "bookworm-0").is_dir()
    images.rename(tmp_path / "elsewhere")
    images.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is no directory"):
        image.remove(print)


def test_a_lock_that_is_a_link_is_not_followed(images, tmp_path):
    (images / image._LOCK).symlink_to(tmp_path / "made")
    with pytest.raises(RunError, match=r"cannot open .*lock: Too many levels"):
        image.remove(print)
    assert not (tmp_path / "made").exists()


def test_missing_tools_are_named_with_their_packages(no_images, monkeypatch):
    monkeypatch.setattr(image, "_which", lambda tool: None)
    with pytest.raises(EnvironmentLackError, match="apt install mmdebstrap e2fsprogs") as raised:
        image.prepare("6.1", print)
    assert raised.value.exit_code == 3
    assert not list(no_images.iterdir())


def test_images_are_named_after_what_they_are_made_of(no_images, tmp_path, monkeypatch):
    before, initramfs = image._folder("6.1"), image._initramfs(tmp_path)
    assert before != image._folder("6.12")
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "hello"))
    script = tmp_path / "other.sh"
    script.write_text("#!/bin/busybox sh\n")
    monkeypatch.setattr(image, "_BOOT_SCRIPT", script)
    assert image._folder("6.1") != before
    assert image._initramfs(tmp_path) != initramfs


def test_signatures_are_cut_off_and_nothing_else():
    module = b"\x7fELF" + bytes(range(200))
    signed = module + b"s" * 77 + struct.pack(">8xI", 77) + b"~Module signature appended~\n"
    assert image._unsigned(signed) == module
    assert image._unsigned(module) == module
