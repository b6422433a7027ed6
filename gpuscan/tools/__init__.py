"""The work behind the commands of ``gpuscan``: each command in cli.py calls one function of this package."""
