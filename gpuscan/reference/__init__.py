"""Computes on NumPy what the engine computes on a device."""
