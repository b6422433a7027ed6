"""Tuning constants for calls that several devices share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TeamHeuristics:
    """The tuning constants of device teams. The comments of `TEAMS` say what they mean."""

    stripe_bytes: int
    min_stripe_bytes: int
    whole_places: int
    stripes_in_flight: int
    min_rows_each: int
    speed_sample_bytes: int
    max_speed_ratio: int
    min_ordered_length: int


TEAMS = TeamHeuristics(
    # Bytes of a stripe of a long array. Short stripes overlap better, and each one costs a carry through the CPU.
    stripe_bytes=64 << 20,
    # The fewest bytes of a stripe: below that, a second device costs more than it saves. Not tuned.
    min_stripe_bytes=4 << 20,
    # Stripes are multiples of this many places if they are longer: whole blocks of most tiles.
    whole_places=1 << 16,
    # Stripes of one device at a time: one is uploaded, one is scanned or waits for its carry, one is downloaded.
    stripes_in_flight=3,
    # The fewest rows for each device before rows are divided: fewer would be shared unevenly. Not tuned.
    min_rows_each=4,
    # Bytes of the scan that measures the speed of unequal devices.
    speed_sample_bytes=16 << 20,
    # How many times as much as the slowest device a device gets, at most.
    max_speed_ratio=16,
    # The least length of the divided axis of an array on several devices for which the first device gets a second
    # stretch: 64 MiB of float32. In shorter ones, the launch of one more scan costs more than it saves. Not tuned.
    min_ordered_length=1 << 24,
)
