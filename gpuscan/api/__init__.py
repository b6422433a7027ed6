"""The public functions and classes."""
