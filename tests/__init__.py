"""Tests of gpuscan, in the packages of gpuscan. A test that needs an adapter asks for a fixture of `conftest`."""
