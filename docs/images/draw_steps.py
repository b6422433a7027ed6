"""Draw steps-*.svg: how tiles get their prefixes under each strategy, step by step, in a small scan of six tiles.

Run it after a change: python docs/images/draw_steps.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent

# The aggregate of each tile, the number of workgroups that run at a time, and the late tile with its steps.
AGGREGATES = (3, 1, 4, 1, 5, 9)
RUNNING = 3
LATE_TILE, LATE_STEPS = 1, 7
# Steps that a tile waits under `fallback` before it reduces the late tile itself.
PATIENCE = 1

# The kinds of cells: fill and text colours.
COLOURS = {
    "reduce": ("#fde6d2", "#9a3f06"),
    "load": ("#e2e8f0", "#334155"),
    "wait": ("#ffffff", "#94a3b8"),
    "look": ("#fef3c7", "#92600a"),
    "help": ("#fbcfe8", "#9d174d"),
    "prefix": ("#dbeafe", "#1d4ed8"),
    "store": ("#dcfce7", "#15803d"),
    "done": ("#f8fafc", "#cbd5e1"),
}
TEXT, LINE = "#0f172a", "#cbd5e1"
CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 112, 30, 74, 64


@dataclass(frozen=True)
class Cell:
    """What a tile does in a step: a kind of `COLOURS`, and some words."""

    kind: str
    words: str


@dataclass
class Memory:
    """What tiles have posted for each other. A post is seen from the next step on."""

    aggregates: dict[int, int] = field(default_factory=dict)
    prefixes: dict[int, int] = field(default_factory=dict)
    unseen: list[tuple[dict[int, int], int, int]] = field(default_factory=list)

    def post(self, kind: dict[int, int], tile: int, value: int) -> None:
        self.unseen.append((kind, tile, value))

    def next_step(self) -> None:
        for kind, tile, value in self.unseen:
            kind[tile] = value
        self.unseen.clear()


# ----- Players: each yields what a tile does in each of its steps

Player = Iterator[Cell]


def reducing(memory: Memory, tile: int) -> Player:
    """Load and reduce a tile, and post its aggregate at the end."""
    for _ in range((LATE_STEPS if tile == LATE_TILE else 1) - 1):
        yield Cell("load", "loads, slowly")
    if tile == 0:
        memory.post(memory.prefixes, 0, AGGREGATES[0])
        yield Cell("prefix", f"posts P = {AGGREGATES[0]}")
    else:
        memory.post(memory.aggregates, tile, AGGREGATES[tile])
        yield Cell("reduce", f"posts A = {AGGREGATES[tile]}")


def totalling(memory: Memory, tile: int) -> Player:
    """Load and reduce a tile, and store its total for the next dispatch."""
    for _ in range((LATE_STEPS if tile == LATE_TILE else 1) - 1):
        yield Cell("load", "loads, slowly")
    yield Cell("reduce", f"total {AGGREGATES[tile]}")


def look_back(memory: Memory, tile: int, patience: int | None = None) -> Player:
    """Look back from tile to tile, up to a posted prefix; if `patience` is given, reduce a tile that is late."""
    yield from reducing(memory, tile)
    seen, at, waited = 0, tile - 1, 0
    while at >= 0:
        if at in memory.prefixes:
            seen += memory.prefixes[at]
            yield Cell("look", f"tile {at}: P = {memory.prefixes[at]}")
            break
        if at in memory.aggregates:
            seen += memory.aggregates[at]
            yield Cell("look", f"tile {at}: A = {memory.aggregates[at]}")
            at, waited = at - 1, 0
        elif patience is not None and waited >= patience:
            memory.post(memory.aggregates, at, AGGREGATES[at])
            yield Cell("help", f"reduces tile {at}")
            waited = 0
        else:
            waited += 1
            yield Cell("wait", f"waits for tile {at}")
    if tile:
        memory.post(memory.prefixes, tile, seen + AGGREGATES[tile])
        yield Cell("prefix", f"posts P = {seen + AGGREGATES[tile]}")
    yield Cell("store", "stores")


def fallback(memory: Memory, tile: int) -> Player:
    """Look back, and help a late tile."""
    return look_back(memory, tile, PATIENCE)


def posts_and_waits(memory: Memory, tile: int) -> Player:
    """Post the aggregate, and wait for the prefix that another workgroup posts."""
    for _ in range((LATE_STEPS if tile == LATE_TILE else 1) - 1):
        yield Cell("load", "loads, slowly")
    memory.post(memory.aggregates, tile, AGGREGATES[tile])
    yield Cell("reduce", f"posts A = {AGGREGATES[tile]}")
    while tile not in memory.prefixes:
        yield Cell("wait", "waits")
    yield Cell("store", f"stores from {memory.prefixes[tile] - AGGREGATES[tile]}")


def folds_ahead(memory: Memory) -> Player:
    """Fold the aggregates in order, two at a time where they are there, and post every tile's prefix."""
    total, tile = 0, 0
    while tile < len(AGGREGATES):
        posted = []
        while tile < len(AGGREGATES) and tile in memory.aggregates and len(posted) < 2:
            total += memory.aggregates[tile]
            memory.post(memory.prefixes, tile, total)
            posted.append(str(total))
            tile += 1
        yield Cell("prefix", f"posts P = {', '.join(posted)}") if posted else Cell("wait", f"waits for tile {tile}")


# ----- Playing: rows of cells, one row a step

Row = dict[int, Cell]


def play_steps(player: Callable[[Memory, int], Player], *, folder: bool = False, last: str = "store") -> list[Row]:
    """Return what every tile does in every step. At most `RUNNING` run at once, and start in order.

    Args:
        player: makes the player of a tile.
        folder: True if a workgroup without a tile (number -1) folds for all.
        last: the kind of a workgroup's last step.
    """
    memory, rows = Memory(), []
    ahead = folds_ahead(memory) if folder else iter(())
    waiting = list(range(len(AGGREGATES)))
    running: dict[int, Player] = {}
    while waiting or running:
        while waiting and len(running) < RUNNING:
            tile = waiting.pop(0)
            running[tile] = player(memory, tile)
        row: Row = {}
        cell = next(ahead, None)
        if cell is not None:
            row[-1] = cell
        for tile in list(running):
            row[tile] = next(running[tile])
            if row[tile].kind == last:
                del running[tile]
        memory.next_step()
        rows.append(row)
    return rows


def three_dispatches() -> list[Row]:
    """Return the steps of three dispatches: each begins when the one before it has ended."""
    tiles = range(len(AGGREGATES))
    totals = [sum(AGGREGATES[:tile]) for tile in tiles]
    rows = play_steps(totalling, last="reduce")
    rows.append({tile: Cell("prefix", f"prefix {totals[tile]}") for tile in tiles})
    for first in range(0, len(AGGREGATES), RUNNING):
        rows.append(
            {
                tile: Cell("store", f"stores from {totals[tile]}")
                for tile in range(first, min(first + RUNNING, len(AGGREGATES)))
            }
        )
    return rows


# ----- Drawing


def label(x: float, y: float, words: str, colour: str, *, size: int = 12, bold: bool = False) -> str:
    """Return centred text."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle" fill="{colour}"{weight}>{words}</text>'


def drawing(title: str, rows: list[Row]) -> str:
    """Return the picture of a strategy: time runs down, tiles stand side by side."""
    columns = [-1, *range(len(AGGREGATES))] if any(-1 in row for row in rows) else list(range(len(AGGREGATES)))
    width = LEFT + len(columns) * CELL_WIDTH + 10
    height = TOP + len(rows) * CELL_HEIGHT + 12
    parts = [f'<text x="10" y="24" font-size="16" font-weight="bold" fill="{TEXT}">{title}</text>']

    def left_of(tile: int) -> float:
        return LEFT + columns.index(tile) * CELL_WIDTH

    for tile in columns:
        name = "ahead" if tile < 0 else f"tile {tile}"
        parts.append(label(left_of(tile) + CELL_WIDTH / 2, TOP - 12, name, TEXT, size=13, bold=True))
    for step, row in enumerate(rows):
        y = TOP + step * CELL_HEIGHT
        parts.append(label(LEFT / 2, y + 20, f"step {step + 1}", "#64748b"))
        for tile, cell in row.items():
            fill, colour = COLOURS[cell.kind]
            x = left_of(tile)
            dash = ' stroke-dasharray="4 3"' if cell.kind == "wait" else ""
            size = f'width="{CELL_WIDTH - 6}" height="{CELL_HEIGHT - 6}"'
            parts.append(f'<rect x="{x + 3}" y="{y + 3}" {size} rx="4" fill="{fill}" stroke="{LINE}"{dash}/>')
            parts.append(label(x + CELL_WIDTH / 2, y + 19, cell.words, colour))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{title}">\n{body}\n</svg>\n'
    )


def pictures() -> dict[Path, str]:
    """Return every picture by its path."""
    made = {
        "three_dispatch": drawing("three_dispatch: totals, then prefixes, then results", three_dispatches()),
        "lookback": drawing("lookback: each tile looks back to a posted prefix", play_steps(look_back)),
        "fallback": drawing("fallback: who waits too long reduces the late tile", play_steps(fallback)),
        "lookahead": drawing("lookahead: one workgroup folds for all", play_steps(posts_and_waits, folder=True)),
    }
    return {FOLDER / f"steps-{name}.svg": text for name, text in made.items()}


if __name__ == "__main__":
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")
