"""Run plans on a device."""
