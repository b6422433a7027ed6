"""Draw strategies.svg: how tiles pass aggregates and prefixes under each strategy.

Run it after a change: python docs/images/draw_strategies.py
"""

from __future__ import annotations

from pathlib import Path

PICTURE = Path(__file__).with_name("strategies.svg")

AGGREGATE, PREFIX, INPUT = "#c2570c", "#1d4ed8", "#15803d"
BOX, LATE, TEXT = "#f1f5f9", "#ffffff", "#0f172a"

# All lengths are in pixels. A panel holds four tiles and the gaps between them.
PANEL_WIDTH, PANEL_HEIGHT = 480, 290
TILE_WIDTH, TILE_GAP, TILES = 92, 20, 4


def text(
    x: float, y: float, words: str, *, size: int = 13, bold: bool = False, colour: str = TEXT, middle: bool = True
) -> str:
    """Return a line of text at a point."""
    anchor = "middle" if middle else "start"
    weight = "bold" if bold else "normal"
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {style}>{words}</text>'


def box(
    x: float, y: float, width: float, height: float, words: str, *, late: bool = False, colour: str = "#475569"
) -> str:
    """Return a rectangle with a centred label; a dashed one if it is late."""
    dash = ' stroke-dasharray="5 4"' if late else ""
    fill = LATE if late else BOX
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{colour}"{dash}/>'
    return shape + text(x + width / 2, y + height / 2 + 4.5, words, colour=colour if colour != "#475569" else TEXT)


def arrow(path: str, colour: str) -> str:
    """Return an arrow along an SVG path."""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8" marker-end="url(#head-{colour[1:]})"/>'


def left_of(tile: int) -> float:
    """Return the left edge of a tile's column."""
    return 24 + tile * (TILE_WIDTH + TILE_GAP)


def panel(column: int, row: int, title: str, line: str, parts: list[str]) -> str:
    """Return one strategy's panel, with its title and one line of explanation."""
    size = f'width="{PANEL_WIDTH - 12}" height="{PANEL_HEIGHT - 12}"'
    frame = f'<rect x="6" y="6" {size} rx="8" fill="none" stroke="#cbd5e1"/>'
    head = text(24, 32, title, size=16, bold=True, middle=False) + text(24, 51, line, size=12, middle=False)
    x, y = column * PANEL_WIDTH, 44 + row * PANEL_HEIGHT
    return f'<g transform="translate({x} {y})">{frame}{head}\n{chr(10).join(parts)}\n</g>'


def draw_cells(tile: int, y: float, *, aggregate: bool, prefix: bool) -> list[str]:
    """Return the two memory cells of a tile: its aggregate and its prefix, dashed while they are not posted."""
    x = left_of(tile)
    return [
        box(x, y, 44, 24, f"A{tile}", late=not aggregate, colour=AGGREGATE),
        box(x + 48, y, 44, 24, f"P{tile}", late=not prefix, colour=PREFIX),
    ]


def three_dispatch() -> str:
    """Draw reduce, scan of the totals, and scan."""
    parts = [box(left_of(0), 138, left_of(3) + TILE_WIDTH - left_of(0), 30, "2. one workgroup scans the totals")]
    for tile in range(TILES):
        x, middle = left_of(tile), left_of(tile) + TILE_WIDTH / 2
        parts += [
            box(x, 68, TILE_WIDTH, 30, "1. reduce"),
            arrow(f"M{middle} 98 V134", AGGREGATE),
            text(middle + 14, 121, f"A{tile}", colour=AGGREGATE),
            arrow(f"M{middle} 168 V224", PREFIX),
            text(middle + 14, 202, f"P{tile}", colour=PREFIX),
            box(x, 228, TILE_WIDTH, 30, "3. scan"),
        ]
    return panel(0, 0, "three_dispatch", "Three dispatches. Nothing waits, but the input is read twice.", parts)


def look_back() -> str:
    """Draw a tile that combines an earlier prefix with the aggregates after it."""
    parts = []
    for tile in range(TILES):
        x = left_of(tile)
        parts += [box(x, 68, TILE_WIDTH, 30, f"tile {tile}"), arrow(f"M{x + 22} 98 V134", AGGREGATE)]
        parts += draw_cells(tile, 138, aggregate=True, prefix=tile < 2)
    x = left_of(3)
    parts += [
        box(x - 62, 228, TILE_WIDTH + 62, 30, "P3 = P1 ⊕ A1 ⊕ A2", colour=PREFIX),
        arrow(f"M{left_of(1) + 70} 162 C{left_of(1) + 80} 210 {x - 100} 238 {x - 66} 241", PREFIX),
        arrow(f"M{left_of(1) + 22} 162 C{left_of(1) + 24} 240 {x - 120} 250 {x - 66} 250", AGGREGATE),
        arrow(f"M{left_of(2) + 22} 162 C{left_of(2) + 30} 195 {x - 30} 205 {x - 20} 224", AGGREGATE),
        arrow(f"M{x + 70} 228 V166", PREFIX),
    ]
    return panel(1, 0, "lookback", "One pass. A tile looks back until it meets a posted prefix.", parts)


def look_ahead() -> str:
    """Draw the first workgroup that folds all aggregates and posts all prefixes."""
    parts = [
        box(left_of(0), 196, left_of(3) + TILE_WIDTH - left_of(0), 40, "first workgroup: folds A0, A1, A2, … in order")
    ]
    for tile in range(TILES):
        x = left_of(tile)
        parts += [
            box(x, 68, TILE_WIDTH, 30, f"tile {tile}"),
            arrow(f"M{x + 24} 98 V192", AGGREGATE),
            text(x + 39, 150, f"A{tile}", colour=AGGREGATE),
            arrow(f"M{x + 68} 196 V102", PREFIX),
            text(x + 83, 150, f"P{tile}", colour=PREFIX),
        ]
    return panel(0, 1, "lookahead", "One pass. One workgroup posts every prefix; each tile waits on one post.", parts)


def fallback() -> str:
    """Draw a tile that reduces a late tile itself."""
    parts = []
    for tile in range(TILES):
        x, late = left_of(tile), tile == 1
        parts += [
            box(x, 66, TILE_WIDTH, 24, f"input {tile}", colour=INPUT),
            box(x, 124, TILE_WIDTH, 30, "tile 1 is late" if late else f"tile {tile}", late=late),
        ]
        parts += draw_cells(tile, 196, aggregate=True, prefix=tile < 2)
        if not late:
            parts += [arrow(f"M{x + 70} 90 V120", INPUT), arrow(f"M{x + 22} 154 V192", AGGREGATE)]
    helper = left_of(2)
    parts += [
        arrow(f"M{left_of(1) + 60} 90 C{left_of(1) + 66} 112 {helper} 98 {helper + 16} 120", INPUT),
        arrow(f"M{helper + 8} 154 C{helper - 4} 184 {left_of(1) + 36} 168 {left_of(1) + 24} 192", AGGREGATE),
        text(
            left_of(0),
            252,
            "Tile 2 has waited long enough for A1: it reads input 1 and posts A1 itself.",
            size=12,
            middle=False,
        ),
    ]
    return panel(1, 1, "fallback", "Look-back, except that a waiting workgroup reduces a late tile itself.", parts)


def picture() -> str:
    """Return the whole picture as SVG text."""
    heads = "".join(
        f'<marker id="head-{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
        for colour in (AGGREGATE, PREFIX, INPUT)
    )
    width, height = 2 * PANEL_WIDTH, 44 + 2 * PANEL_HEIGHT
    legend = text(24, 28, "A: aggregate, all elements of a tile combined", bold=True, colour=AGGREGATE, middle=False)
    legend += text(380, 28, "P: prefix, everything before a tile combined", bold=True, colour=PREFIX, middle=False)
    legend += text(730, 28, "dashed: not there yet", middle=False)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="Helvetica, Arial, sans-serif">\n<defs>{heads}</defs>\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n{legend}\n'
        f"{three_dispatch()}\n{look_back()}\n{look_ahead()}\n{fallback()}\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
