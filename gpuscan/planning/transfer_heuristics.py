"""Hold the tuning constants of transfers: copies by the CPU, submissions, waits, and parts for several devices.

A constant belongs here if changing it changes only the speed, or which of several safe shapes is chosen. Each entry
names its evidence, by the words of `gpuscan.planning.heuristics`.
"""

from __future__ import annotations

from dataclasses import dataclass

# ----- Copies by the CPU, submissions and waits


@dataclass(frozen=True)
class Transfers:
    """The tuning constants for copies by the CPU, on every adapter."""

    # Threads that copy at the same time, at most. H100: one does not fill the bus, more than eight do not help.
    max_copy_threads: int = 8
    # Copies of one device at the same time: one part is filled while the results of another are written. H200, 512 MiB:
    # 28.5 GB/s with 16 threads, 26.9 with 8.
    copies_at_a_time: int = 2
    # Bytes that are worth a thread, and bytes of a staging buffer. Not measured on record: a thread starts in far less
    # time than it copies 2 MiB, and 32 MiB keep the bus busy.
    min_copy_share_bytes: int = 2 << 20
    staging_bytes: int = 32 << 20
    # Staging buffers in a ring. Not measured: one is filled, one is on the bus, one waits.
    staging_depth: int = 3
    # Up to this many bytes, the queue's own staging uploads faster: on an H100 and lavapipe. Not measured on record:
    # such an upload takes about as long as a submission.
    single_write_bytes: int = 1 << 20
    # Parts in flight. Not measured: one is filled, one is on the GPU, one is read back.
    parts_in_flight: int = 3
    # Parts of one call that write their results at the same time, on other threads. Not measured: one writes at the
    # speed of memory, since its copies have several threads.
    parts_writing_back: int = 1
    # Calls that write results at the same time, each with `max_copy_threads`. Not measured: four fill a bus.
    max_write_backs: int = 4
    # Runs deferred at most. lavapipe: ten calls of a plan and a wait take 250 us, 660 without.
    deferred_runs: int = 16
    # Runs are submitted once the GPU needs this many times as long for them as their submission takes. The GPU's time
    # is estimated by the bytes that a fast GPU reads in a scan, so that it is not overestimated: an H200 scans 134 MB
    # in 75 us. H200, eight calls of 134 MB: 1.5, 2 and 3 differ by less than 5 %.
    deferred_submissions: float = 2.0
    most_bytes_per_second: float = 2e12
    # The first estimate of what a submission takes, and how many times as long the next estimate is at most. H200: 30
    # us on a quiet machine, 150 us on others. The growth is not measured: chance must not hold many runs back.
    submission_seconds: float = 60e-6
    submission_growth: float = 1.25
    # What each further run of a submission takes, as a share of the first one's time. H200: 30 to 45 us for one run, 90
    # to 240 for eight.
    recorded_run_share: float = 0.2
    # Arrays of up to this many bytes are uploaded with the deferred runs, and the bytes of all of them. Not measured:
    # the CPU copies such an array in less time than a submission takes.
    deferred_upload_bytes: int = 64 << 10
    deferred_uploads_bytes: int = 1 << 20
    # Seconds in which a wait polls again and again, before the driver puts the thread to sleep. H200: 40 us less for
    # each wait that ends within them, since the driver wakes a thread late.
    spin_seconds: float = 2e-3


TRANSFERS = Transfers()
# ----- Device groups


@dataclass(frozen=True)
class DeviceGroupHeuristics:
    """The tuning constants of device groups."""

    # Bytes of a round-robin chunk of a long array. Short ones overlap better, and each costs a carry through the CPU.
    # Not measured: uploading one takes some milliseconds, and a carry takes much less.
    round_robin_bytes: int = 64 << 20
    # The fewest bytes of a chunk: below that, a second device costs more than it saves. Not measured: few submissions.
    min_round_robin_bytes: int = 4 << 20
    # Chunks are multiples of this many places if they are longer. Not measured: they are whole blocks of most tiles.
    whole_places: int = 1 << 16
    # Chunks of one device at a time. Not measured: one is uploaded, one is scanned or waits, one is downloaded.
    chunks_in_flight: int = 3
    # The fewest rows for each device before rows are divided: fewer would be shared unevenly. Not measured: with four
    # rows, shares are off by at most an eighth of a device's work.
    min_rows_each: int = 4
    # Bytes of the scan that measures the speed of unequal devices. Not measured: it takes longer than its submission.
    speed_sample_bytes: int = 16 << 20
    # How many times as much as the slowest device a device gets, at most. Not measured: a bound for wrong samples.
    max_speed_ratio: int = 16
    # The least length of the divided axis of an array on several devices for which the first device gets a second
    # range: 64 MiB of float32. In shorter ones, the submission of one more scan costs more than it saves. Not measured:
    # such a scan takes a small share of its transfers' time.
    min_ordered_length: int = 1 << 24


DEVICE_GROUPS = DeviceGroupHeuristics()
