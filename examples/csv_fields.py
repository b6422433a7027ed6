"""Find the fields of CSV text with quotes and escapes: a loop over states, and then a compaction.

Whether a comma separates fields depends on all characters before it. The loop has three states: outside of quotes,
inside, and inside after a backslash. A function of three states is a small table, and tables compose.

Run it: python examples/csv_fields.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs

OUTSIDE, INSIDE, ESCAPED = 0, 1, 2
ROWS = 3_000


def step(state: Any, character: Any) -> tuple[Any, Any]:
    """Return the next state, and whether the character ends a field."""
    if state == OUTSIDE:
        ends = character == ord(",") or character == ord("\n")
        return INSIDE if character == ord('"') else OUTSIDE, ends
    if state == INSIDE and character == ord('"'):
        return OUTSIDE, False
    if state == INSIDE and character == ord("\\"):
        return ESCAPED, False
    return INSIDE, False


def main() -> None:
    """Split a text into fields, and compare with a loop over characters."""
    row = '{0},"name, of \\"{0}\\"",{1}\n'
    text = "".join(row.format(i, i * i) for i in range(ROWS))
    characters = np.frombuffer(text.encode(), np.uint8)
    _, ends = gs.loop(step, np.int32(OUTSIDE), characters)
    state = OUTSIDE
    for character, end in zip(characters, ends, strict=True):
        state, expected = step(state, character)
        assert end == expected

    places = gs.compact(np.arange(len(characters)), ends)

    starts = np.concatenate([[0], places[:-1] + 1])
    fields = [text[start:end] for start, end in zip(starts, places, strict=True)]
    assert len(fields) == 3 * ROWS
    assert fields[:3] == ["0", '"name, of \\"0\\""', "0"]
    assert fields[-1] == str((ROWS - 1) ** 2)
    print(f"Found {len(fields):,} fields in {len(characters):,} characters.")


if __name__ == "__main__":
    main()
