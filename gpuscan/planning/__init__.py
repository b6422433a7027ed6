"""Make a plan of a problem and a device's capabilities, with pure functions over frozen values."""
