"""Tests of loops that run as scans."""
