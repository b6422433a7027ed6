"""Exports of scans to programs outside Python."""
