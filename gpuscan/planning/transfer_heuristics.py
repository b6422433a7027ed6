"""Hold the tuning constants for copies by the CPU, for submissions and for waits, on every adapter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Transfers:
    """The tuning constants for copies by the CPU, on every adapter."""

    # Threads that copy at the same time, at most. H100: one does not fill the bus, more than eight do not help.
    max_copy_threads: int = 8
    # Copies of one device at the same time: one part is filled while the results of another are written. H200, 512 MiB:
    # 28.5 GB/s with 16 threads, 26.9 with 8.
    copies_at_a_time: int = 2
    # Bytes that are worth a thread, and bytes of a staging buffer. The experiments were not recorded.
    min_copy_share_bytes: int = 2 << 20
    staging_bytes: int = 32 << 20
    # Staging buffers in a ring: one is filled, one is on the bus, one waits.
    staging_depth: int = 3
    # Up to this many bytes, the queue's own staging uploads faster: on an H100 and lavapipe, numbers not recorded.
    single_write_bytes: int = 1 << 20
    # Parts in flight: one is filled, one is on the GPU, one is read back.
    parts_in_flight: int = 3
    # Parts of one call that write their results at the same time, on other threads. Not tuned.
    parts_draining: int = 1
    # Calls that write their results at the same time. Each of them copies with `max_copy_threads`. Not tuned.
    max_drains: int = 4
    # Runs held back at most, and their bytes. lavapipe: ten calls of a plan and a wait take 250 us, 660 without.
    held_runs: int = 16
    held_bytes: int = 64 << 20
    # Seconds in which a wait polls again and again, before it lets the driver put the thread to sleep.
    spin_seconds: float = 200e-6


TRANSFERS = Transfers()
