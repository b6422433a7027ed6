"""Adapters, the probe, memory, transfers and submission."""
