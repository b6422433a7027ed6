"""``python -m gpuscan``: the command line."""

from gpuscan.cli import main

main()
