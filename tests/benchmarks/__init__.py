"""Tests of what the scripts in benchmarks/ share: other libraries, linear recurrences, recorded scans."""
