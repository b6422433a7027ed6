"""The tables of tuning constants name the evidence for each of them."""

from __future__ import annotations

import re
from pathlib import Path

from gpuscan.planning import heuristics, key_heuristics, transfer_heuristics

# The hardware of an experiment, or the words that there was none.
EVIDENCE = re.compile(r"H100|H200|lavapipe|llvmpipe|SwiftShader|[Nn]ot\s+measured|[Aa]s above|for the same reason")


def test_constants_have_evidence() -> None:
    """Assert that the comment above each constant names hardware, or says that it was not measured."""
    tables = (heuristics, key_heuristics, transfer_heuristics)
    source = "".join(Path(str(each.__file__)).read_text(encoding="utf-8") for each in tables)
    bare, comment, continues, described = [], "", False, 0
    for line in source.splitlines():
        if line.startswith("class "):
            # The attributes of a measured shape are no constants.
            comment, continues = line if "MeasuredShape" in line else "", False
        elif re.match(r"    # (?!-----)", line):
            comment = f"{comment} {line.strip()[2:]}" if continues else line.strip()[2:]
            continues = True
        elif constant := re.match(r"    (\w+)(: .*)? ?= ?", line):
            continues = False
            described += 1
            if not EVIDENCE.search(comment) and "MeasuredShape" not in comment:
                bare.append(constant[1])
        else:
            continues = False
    assert described > 150
    assert bare == []
