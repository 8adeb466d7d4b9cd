# SPDX-License-Identifier: GPL-2.0-or-later
"""OpenMetrics text (the exposition format 1.0.0): families of samples with labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric."""

    labels: Mapping[str, str]
    value: int


@dataclasses.dataclass(slots=True)
class Family:
    """All samples of one metric; of a counter each sample's name ends in `_total`."""

    name: str
    meaning: str
    kind: Literal["counter", "gauge"] = "counter"
    samples: list[Sample] = dataclasses.field(default_factory=list)

    def lines(self) -> Iterable[str]:
        """The family as it is written."""
        yield f"# TYPE {self.name} {self.kind}"
        yield f"# HELP {self.name} {self.meaning.translate(_HELP_ESCAPES)}"
        suffix = "_total" if self.kind == "counter" else ""
        for sample in self.samples:
            yield f"{self.name}{suffix}{_labels(sample.labels)} {sample.value}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()]
    return "{" + ",".join(pairs) + "}" if pairs else ""


class Exposition:
    """Families in the order in which they first got a sample."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def counter(self, name: str, meaning: str, labels: Mapping[str, str], value: int) -> None:
        """A count that only grows while its labels live."""
        self._family(name, meaning, "counter").samples.append(Sample(labels, value))

    def gauge(self, name: str, meaning: str, labels: Mapping[str, str], value: int) -> None:
        """A number that may shrink."""
        self._family(name, meaning, "gauge").samples.append(Sample(labels, value))

    def _family(self, name: str, meaning: str, kind: Literal["counter", "gauge"]) -> Family:
        return self._families.setdefault(name, Family(name, meaning, kind))

    def text(self) -> str:
        """The whole document."""
        lines = [line for family in self._families.values() for line in family.lines()]
        return "\n".join([*lines, "# EOF"]) + "\n"
