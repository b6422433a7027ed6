"""Tests that run on every adapter found (the fixtures `adapter` and `device` of tests/conftest.py)."""
