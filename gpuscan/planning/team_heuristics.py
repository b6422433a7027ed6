"""Hold the tuning constants for calls that several devices share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TeamHeuristics:
    """The tuning constants of device teams."""

    # Bytes of a stripe of a long array. Short stripes overlap better, and each one costs a carry through the CPU.
    stripe_bytes: int = 64 << 20
    # The fewest bytes of a stripe: below that, a second device costs more than it saves. Not tuned.
    min_stripe_bytes: int = 4 << 20
    # Stripes are multiples of this many places if they are longer: whole blocks of most tiles.
    whole_places: int = 1 << 16
    # Stripes of one device at a time: one is uploaded, one is scanned or waits for its carry, one is downloaded.
    stripes_in_flight: int = 3
    # The fewest rows for each device before rows are divided: fewer would be shared unevenly. Not tuned.
    min_rows_each: int = 4
    # Bytes of the scan that measures the speed of unequal devices.
    speed_sample_bytes: int = 16 << 20
    # How many times as much as the slowest device a device gets, at most.
    max_speed_ratio: int = 16
    # The least length of the divided axis of an array on several devices for which the first device gets a second
    # stretch: 64 MiB of float32. In shorter ones, the launch of one more scan costs more than it saves. Not tuned.
    min_ordered_length: int = 1 << 24


TEAMS = TeamHeuristics()
