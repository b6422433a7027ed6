"""The table of a profile: how long each stage took on the GPU."""

from __future__ import annotations

from gpuscan.device.profiles import Profile
from gpuscan.tools.console import table_console


def print_profile(profile: Profile) -> None:
    """Print a row for each stage, in the order of the first dispatches."""
    from rich.table import Table

    table = Table("stage", "strategy", "dispatches", "elements", "GPU time")
    spans = profile.spans
    for stage, strategy in dict.fromkeys((span.stage, span.strategy) for span in spans):
        alike = [span for span in spans if (span.stage, span.strategy) == (stage, strategy)]
        seconds = [span.gpu_seconds for span in alike if span.gpu_seconds is not None]
        time = f"{sum(seconds) * 1e3:.3f} ms" if seconds else "no timestamps"
        table.add_row(stage, strategy, str(len(alike)), str(sum(span.elements for span in alike)), time)
    table_console().print(table)
