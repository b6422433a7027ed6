"""The tests mirror gpuscan/; what needs an adapter is under gpu/."""
