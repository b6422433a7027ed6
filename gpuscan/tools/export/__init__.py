"""Shaders for programs outside Python."""
