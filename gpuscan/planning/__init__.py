"""From a problem and a device's capabilities to a plan: pure functions over frozen values."""
