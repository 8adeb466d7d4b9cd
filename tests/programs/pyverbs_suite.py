# SPDX-License-Identifier: GPL-2.0-or-later
"""rdma-core's own tests of the device, as Debian's python3-pyverbs ships them.

    apt install python3-pyverbs
    ./lab exec --verbs h1 -- /usr/bin/python3 tests/programs/pyverbs_suite.py [MODULE...]

Each module has a process of its own: a crash is a result, too. Modules of other vendors' devices
are left out. tests/programs/test_pyverbs.py has the counts, and says why tests skip or fail.
"""

import collections
import dataclasses
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
import random, sys, unittest
random.seed(1)  # they draw attributes, and skip what asks for one that is not there
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


@dataclasses.dataclass
class Module:
    """What came of one."""

    name: str
    status: int  # that its process ended with; negative: the signal of a crash
    tests: int
    passed: int
    skipped: list[str]  # their reasons
    failed: list[str]  # module.Class.function

    def __str__(self):
        text = f"{self.name}: {self.tests} tests, {self.passed} passed, {len(self.skipped)} skipped"
        ended = f", ended with {self.status}" if self.status else ""
        return text + "".join(f", failed: {each}" for each in self.failed) + ended


def run(folder, name):
    """A module of the folder that `unpack` filled."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, folder, name], capture_output=True, text=True,
        timeout=LONGEST_S, check=False,
    )  # fmt: skip
    ran = re.search(r"^Ran (\d+) test", done.stderr, re.MULTILINE)
    return Module(
        name=name,
        status=done.returncode,
        tests=int(ran[1]) if ran else 0,
        passed=len(re.findall(r"\.\.\. ok$", done.stderr, re.MULTILINE)),
        skipped=re.findall(r"\.\.\. skipped (?:'|\")(.*)(?:'|\")$", done.stderr, re.MULTILINE),
        failed=re.findall(r"^(?:FAIL|ERROR): \w+ \(tests\.([\w.]+)\)", done.stderr, re.MULTILINE),
    )


def main(names):
    """Runs these modules, or all. Prints a line for each, for each reason to skip, and for all."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        unpack(folder)
        found = sorted(file.stem for file in (folder / "tests").glob("test_*.py"))
        modules = []
        for name in names or [each for each in found if not FOREIGN.match(each)]:
            modules.append(run(folder, name))
            print(modules[-1], flush=True)
    reasons = collections.Counter(reason for each in modules for reason in each.skipped)
    for reason, count in sorted(reasons.items()):
        print(f"{count} skipped: {reason}")
    tests, passed, skipped, failed, crashed = (
        sum(counts)
        for counts in zip(
            *((m.tests, m.passed, len(m.skipped), len(m.failed), m.status != 0) for m in modules),
            strict=True,
        )
    )
    print(f"{tests} tests: {passed} passed, {failed} failed, {skipped} skipped, {crashed} crashed")


if __name__ == "__main__":
    main(sys.argv[1:])
