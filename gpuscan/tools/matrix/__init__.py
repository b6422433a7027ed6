"""The conformance matrix: which scans pass on which adapter."""
