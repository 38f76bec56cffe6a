"""Measures a fabric: the bandwidth between two nodes."""
