"""Programs that only a type checker reads; see `tests/test_typing.py`."""
