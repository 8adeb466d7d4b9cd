# SPDX-License-Identifier: GPL-2.0-or-later
"""What Debian's packages of rdma-core have: offsets of the headers, symbols of the libraries.

`python -m tests.programs.debian` downloads them and writes debian_12.txt and debian_13.txt.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.programs.layout import of_headers

PACKAGES = {
    "12": ("bookworm", ["libibverbs1", "libibverbs-dev", "librdmacm1", "librdmacm-dev"]),
    "13": ("trixie", ["libibverbs1", "libibverbs-dev", "librdmacm1t64", "librdmacm-dev"]),
}
LIBRARIES = ("libibverbs", "librdmacm")
FOLDER = Path(__file__).parent
_ARCHIVE = "http://deb.debian.org/debian"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FETCH_S = 120
_OWN = """\
Dir::Etc "{0}/etc";
Dir::State "{0}/state";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
APT::Architecture "amd64";
APT::Sandbox::User "root";
"""


def exported(library):
    """(name, node, whether new programs get it) of each symbol."""
    shown = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True,
                           capture_output=True, text=True).stdout  # fmt: skip
    lines = [line.split() for line in shown.splitlines()]
    names = [words[7] for words in lines if len(words) > 7 and words[6] != "UND"]
    found = [re.fullmatch(r"(\w+)(@@?)([\w.]+)", name) for name in names]
    return {(m[1], m[3], m[2] == "@@") for m in found if m}


def facts(release):
    """Lines of text, from packages that are downloaded. subprocess.SubprocessError without them."""
    suite, packages = PACKAGES[release]
    with tempfile.TemporaryDirectory() as folder:
        _download(Path(folder), suite, packages)
        versions = []
        for package in sorted(Path(folder).glob("*.deb")):
            name, version, _ = package.name.split("_")
            versions.append(f"package {name} {version}")
            subprocess.run(["dpkg-deb", "-x", package, Path(folder, "root")], check=True)
        return [*versions, *_of_root(Path(folder, "root"))]


def _download(folder, suite, packages):
    for name in ("etc/preferences.d", "etc/apt.conf.d", "state/lists/partial",
                 "cache/archives/partial"):  # fmt: skip
        Path(folder, name).mkdir(parents=True)
    Path(folder, "status").touch()
    Path(folder, "etc/sources.list").write_text(f"deb [signed-by={_KEYS}] {_ARCHIVE} {suite} main")
    Path(folder, "apt.conf").write_text(_OWN.format(folder))
    apt = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    for argv in (["update", "--error-on=any"], ["download", *packages]):
        subprocess.run(["apt-get", "-q", *argv], cwd=folder, env=apt, check=True,
                       capture_output=True, timeout=_FETCH_S)  # fmt: skip


def _of_root(root):
    yield from (f"layout {line}" for line in of_headers(root / "usr/include"))
    for library in LIBRARIES:
        [path] = root.glob(f"usr/lib/*/{library}.so.1")
        for name, node, new in sorted(exported(path.resolve())):
            yield f"symbol {library} {name}{'@@' if new else '@'}{node}"


def committed(release):
    """The same, as it was when somebody ran this module."""
    return (FOLDER / f"debian_{release}.txt").read_text().splitlines()


def layout(lines):
    """Sizes and offsets by name, bytes."""
    words = [line.split() for line in lines]
    return {name: int(value) for kind, name, value in words if kind == "layout"}


def symbols(lines, library):
    """As `exported`."""
    found = [line.split()[2] for line in lines if line.startswith(f"symbol {library} ")]
    parts = [re.fullmatch(r"(\w+)(@@?)(.+)", each).groups() for each in found]
    return {(name, node, at == "@@") for name, at, node in parts}


if __name__ == "__main__":
    for each in PACKAGES:
        (FOLDER / f"debian_{each}.txt").write_text("\n".join(facts(each)) + "\n")
