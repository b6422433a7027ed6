"""Runs plans on a device."""
