"""The version, in one place: the build backend and the cache keys read it here."""

__version__ = "0.1.0"
