"""Export scans to web browsers: the plans, what scan.js has to know of them, and samples to check them with."""
