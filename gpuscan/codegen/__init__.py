"""The WGSL text of a kernel."""
