"""Draw a picture for each example of the gallery. In most of them the input is grey and the result blue."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import gpuscan as gs

# Pixels of a picture.
SIZE = (400, 280)

GREY, BLUE, RED = "#b6bdc9", "#1d4ed8", "#dc2626"

Draw = Callable[[Any, np.random.Generator], None]


def advantage_estimation(axes: Any, rng: np.random.Generator) -> None:
    errors, ends = rng.normal(size=60).astype(np.float32), np.arange(60) % 20 == 19
    axes.bar(range(60), errors, color=GREY)
    axes.plot(gs.linear_recurrence(np.where(ends, 0, 0.9).astype(np.float32), errors, reverse=True), color=BLUE)


def argmax_so_far(axes: Any, rng: np.random.Generator) -> None:
    results = rng.normal(size=50).astype(np.float32)
    best = gs.scan(results, "maximum")
    axes.plot(results, ".", color=GREY)
    axes.step(range(50), best, where="post", color=BLUE)
    axes.plot(*zip(*[(i, v) for i, v in enumerate(results) if v == best[i]], strict=True), "o", color=RED)


def associative_recall(axes: Any, rng: np.random.Generator) -> None:
    steps, keys = 24, 6
    asked = rng.integers(keys, size=steps)
    k = np.eye(keys, dtype=np.float32)[asked].reshape(1, steps, 1, keys)
    v, gates = rng.random((1, steps, 1, 1), np.float32), np.zeros((1, steps, 1), np.float32)
    memory = [
        gs.gated_delta_rule(k[:, :t], k[:, :t], v[:, :t], gates[:, :t], gates[:, :t] + 1, output_final_state=True)[1]
        for t in range(1, steps + 1)
    ]
    axes.imshow(np.stack(memory)[:, 0, 0, :, 0].T, cmap="Blues", aspect="auto")
    axes.scatter(range(steps), asked, color=RED, s=25)


def advantages_by_a_loop(axes: Any, rng: np.random.Generator) -> None:
    rewards, done = rng.normal(size=80).astype(np.float32), rng.random(80) < 0.05
    step = lambda g, x: x[0] + np.float32(0.95) * np.where(x[1], 0, g)  # noqa: E731
    axes.bar(range(80), rewards, color=GREY)
    axes.plot(gs.loop(step, 0.0, (rewards, done), reverse=True)[1], color=BLUE, linewidth=3)


def bucket_with_a_lid(axes: Any, rng: np.random.Generator) -> None:
    change = rng.normal(size=120).astype(np.float32)
    axes.fill_between(range(120), gs.loop(lambda h, x: np.clip(h + x, 0, 5), 2.0, change)[1], step="mid", color=BLUE)
    axes.plot([0, 119], [5, 5], color=RED)


def csv_fields(axes: Any, rng: np.random.Generator) -> None:
    text = np.frombuffer(b'id,"last, first",7', np.uint8)
    inside = gs.loop(lambda s, c: s ^ (c == ord('"')), False, text)[1]
    for place, (letter, quoted) in enumerate(zip(text, inside, strict=True)):
        axes.text(place, 0, chr(letter), color=BLUE if quoted else GREY, size=13, family="monospace", ha="center")
    axes.set(xlim=(-1, len(text)), ylim=(-1, 1))


def draw_a_walk(axes: Any, rng: np.random.Generator) -> None:
    walk = gs.scan(rng.choice(np.array([-4, 4], np.int32), 200))
    axes.fill_between(range(200), walk, walk.min() - 8, step="mid", color=BLUE)


def exponential_average(axes: Any, rng: np.random.Generator) -> None:
    signal = (np.sin(np.arange(200) / 25) + rng.normal(size=200) / 2).astype(np.float32)
    axes.plot(signal, color=GREY)
    axes.plot(gs.linear_recurrence(0.9, signal / 10), color=BLUE, linewidth=3)


def fill_gaps(axes: Any, rng: np.random.Generator) -> None:
    values = np.cumsum(rng.normal(size=40)).astype(np.float32)
    known = rng.random(40) < 0.4
    known[0] = True
    last = gs.scan(np.where(known, np.arange(40), 0).astype(np.int32), "maximum")
    axes.step(range(40), values[last], where="post", color=BLUE)
    axes.plot(np.flatnonzero(known), values[known], "o", color=GREY, markersize=8)


def forward_fill(axes: Any, rng: np.random.Generator) -> None:
    known = rng.random((12, 6)) < 0.5
    known[0] = True
    last = gs.scan(np.where(known, np.arange(12)[:, None], 0).astype(np.int32), "maximum", axis=0)
    values = rng.random((12, 6))
    table = np.take_along_axis(values, last, 0)
    axes.imshow(np.hstack([np.where(known, values, np.nan), np.full((12, 1), np.nan), table]), "Blues", aspect="auto")


def group_statistics(axes: Any, rng: np.random.Generator) -> None:
    labels = rng.integers(0, 3, 150)
    values = (rng.normal(size=150) + 4 * labels).astype(np.float32)
    means = gs.scan(values, groups=labels) / gs.scan(np.ones(150, np.float32), groups=labels)
    axes.plot(values, ".", color=GREY)
    for label in range(3):
        axes.plot(np.flatnonzero(labels == label), means[labels == label], color=BLUE)


def hidden_markov_model(axes: Any, rng: np.random.Generator) -> None:
    states = np.repeat([0, 1, 0, 1], [30, 20, 25, 25])
    seen = np.where(rng.random(100) < 0.8, states, 1 - states)
    moves = np.array([[0.95, 0.05], [0.05, 0.95]])
    likely = np.where(seen[:, None] == [0, 1], 0.8, 0.2)
    products = gs.scan((1.6 * moves * likely[:, None, :]).astype(np.float32), "matmul", axis=0)
    beliefs = products.sum(1)
    axes.fill_between(range(100), states, color=GREY, step="mid")
    axes.plot(beliefs[:, 1] / beliefs.sum(1), color=BLUE)


def inside_an_encoder(axes: Any, rng: np.random.Generator) -> None:
    x, y = rng.random((2, 150))
    axes.scatter(x, y, c=(4 * x).astype(int) + 4 * (4 * y).astype(int), cmap="tab20")
    for line in (0.25, 0.5, 0.75):
        axes.axhline(line, color=GREY)
        axes.axvline(line, color=GREY)


def integral_image(axes: Any, rng: np.random.Generator) -> None:
    image = (rng.random((14, 20)) < 0.15).astype(np.int32)
    axes.imshow(gs.scan(gs.scan(image, axis=0), axis=1), "Blues", aspect="auto")
    axes.plot(*np.nonzero(image)[::-1], ".", color=GREY)


def kalman_filter(axes: Any, rng: np.random.Generator) -> None:
    truth = np.cumsum(rng.normal(size=100)) / 4
    measured = (truth + rng.normal(size=100)).astype(np.float32)
    axes.plot(measured, ".", color=GREY)
    axes.plot(gs.loop(lambda m, x: m + np.float32(0.25) * (x - m), 0.0, measured)[1], color=BLUE, linewidth=3)


def kalman_smoother(axes: Any, rng: np.random.Generator) -> None:
    turns = np.linspace(0, 5, 120)
    measured = (np.array([np.cos(turns) + turns / 3, np.sin(turns)]) + rng.normal(size=(2, 120)) / 8).astype(np.float32)
    averages = gs.linear_recurrence(0.8, 0.2 * measured, initial=measured[:, 0])
    axes.plot(*measured, ".", color=GREY)
    axes.plot(*averages, color=BLUE, linewidth=3)


def maximum_drawdown(axes: Any, rng: np.random.Generator) -> None:
    prices = np.cumsum(rng.normal(size=250)).astype(np.float32)
    peaks = gs.scan(prices, "maximum")
    axes.fill_between(range(250), prices, peaks, color="#fecaca")
    axes.plot(prices, color=GREY)
    axes.plot(peaks, color=BLUE)


def mpi_scan(axes: Any, rng: np.random.Generator) -> None:
    values = gs.scan(rng.normal(size=120).astype(np.float32))
    for part, colour in enumerate((BLUE, RED, "#059669", "#d97706")):
        axes.plot(range(30 * part, 30 * part + 30), values[30 * part : 30 * part + 30], color=colour, linewidth=3)


def ragged_softmax(axes: Any, rng: np.random.Generator) -> None:
    lengths = (12, 5, 9, 3)
    offsets = np.cumsum([0, *lengths])
    scores = np.exp(rng.normal(size=offsets[-1]) * 1.3).astype(np.float32)
    shares = scores / np.repeat(gs.reduce(scores, segments=offsets), lengths)
    for row, (begin, end) in enumerate(pairwise(offsets)):
        axes.bar(range(end - begin), shares[begin:end], bottom=-row, color=BLUE, width=0.9)
        axes.axhline(-row, color=GREY)


def rank_words(axes: Any, rng: np.random.Generator) -> None:
    counts = gs.unique_counts((rng.zipf(1.3, 5000) % 200).astype(np.int32)).counts
    axes.bar(np.arange(25), gs.top_k(counts, 25)[0], color=BLUE)


def selective_copying(axes: Any, rng: np.random.Generator) -> None:
    places = np.sort(rng.choice(30, 6, replace=False))
    for target, place in enumerate(places):
        axes.plot([place, 24 + target], [1, 0], color=GREY)
    axes.scatter(places, np.ones(6), c=range(6), cmap="tab10", s=120, zorder=3)
    axes.scatter(24 + np.arange(6), np.zeros(6), c=range(6), cmap="tab10", s=120, zorder=3)


def stream_of_chunks(axes: Any, rng: np.random.Generator) -> None:
    payments = rng.normal(size=100).astype(np.float32)
    axes.bar(range(100), payments, color=GREY)
    for number, balance in enumerate(gs.scan_chunks(np.split(payments, 5))):
        axes.plot(range(20 * number, 20 * number + 20), balance, color=BLUE, linewidth=3)
        axes.axvline(20 * number - 0.5, color=GREY, linestyle=":")


def train_recurrent_layer(axes: Any, rng: np.random.Generator) -> None:
    gates = np.exp(np.array([-0.02 + 0.2j, -0.01 + 0.07j])).astype(np.complex64)
    impulse = np.zeros((2, 200), np.complex64)
    impulse[:, 0] = 1
    axes.plot(gs.linear_recurrence(gates[:, None], impulse).real.sum(0), color=GREY, linewidth=6)
    axes.plot(gs.linear_recurrence(gates[:, None], impulse).real.sum(0), color=BLUE)


def weighted_sampling(axes: Any, rng: np.random.Generator) -> None:
    weights = rng.integers(1, 20, 12)
    axes.bar(range(12), weights / weights.sum() * 4, color=GREY)
    axes.step(range(12), gs.cumulative_sum(weights) / weights.sum(), where="mid", color=BLUE)
    axes.plot([-0.5, 6], [0.55, 0.55], color=RED)


PICTURES: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        advantage_estimation,
        advantages_by_a_loop,
        argmax_so_far,
        associative_recall,
        bucket_with_a_lid,
        csv_fields,
        draw_a_walk,
        exponential_average,
        fill_gaps,
        forward_fill,
        group_statistics,
        hidden_markov_model,
        inside_an_encoder,
        integral_image,
        kalman_filter,
        kalman_smoother,
        maximum_drawdown,
        mpi_scan,
        ragged_softmax,
        rank_words,
        selective_copying,
        stream_of_chunks,
        train_recurrent_layer,
        weighted_sampling,
    )
}


def draw_picture(name: str, path: Path) -> None:
    """Draw the picture of an example into a PNG file."""
    figure = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    PICTURES[name](axes, np.random.default_rng(4))
    figure.savefig(path, format="png")
