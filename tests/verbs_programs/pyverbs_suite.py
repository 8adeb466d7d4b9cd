# SPDX-License-Identifier: GPL-2.0-or-later
"""rdma-core's own tests of the device, as Debian's python3-pyverbs ships them: run by hand.

    apt install python3-pyverbs
    ./lab exec --verbs h1 -- /usr/bin/python3 tests/verbs_programs/pyverbs_suite.py

Each module has a process of its own: a crash is a result, too. Modules of other vendors' devices
are left out. docs/programs.md has the counts and explains what fails.
"""

import gzip
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SHIPPED = Path("/usr/share/doc/rdma-core/tests")
FOREIGN = re.compile(r"test_(mlx5|efa|cuda)")
LONGEST_S = 120
RUN = """\
import sys, unittest
folder, module = sys.argv[1:]
sys.path[:0] = [folder, folder + "/tests"]
sys.argv[1:] = ["--dev", "softroce0", "--port", "1", "--gid", "0"]
from args_parser import parser
parser.parse_args()
import tests
suite = unittest.defaultTestLoader.loadTestsFromName("tests." + module)
unittest.TextTestRunner(verbosity=2).run(suite)
"""


def unpack(folder):
    """The tests without the compression of Debian's documents."""
    (folder / "tests").mkdir()
    for file in SHIPPED.iterdir():
        packed = file.suffix == ".gz"
        content = gzip.decompress(file.read_bytes()) if packed else file.read_bytes()
        (folder / "tests" / (file.stem if packed else file.name)).write_bytes(content)


def main():
    """Prints a line a module, and what failed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack(folder)
        for file in sorted((folder / "tests").glob("test_*.py")):
            if FOREIGN.match(file.stem):
                continue
            done = subprocess.run(
                [sys.executable, "-c", RUN, folder, file.stem], capture_output=True, text=True,
                timeout=LONGEST_S, check=False,
            )  # fmt: skip
            words = done.stderr.strip().splitlines() or ["nothing"]
            print(f"{file.stem}: ended with {done.returncode}: {words[-1]}")
            for line in re.findall(r"^(?:FAIL|ERROR): .*", done.stderr, re.MULTILINE):
                print(f"  {line}")


if __name__ == "__main__":
    main()
