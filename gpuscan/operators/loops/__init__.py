"""Derive the associative form of a loop from its step: one module for each class of maps."""
