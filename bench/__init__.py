"""Benchmarks: figures and ratios of one run, printed as one JSON object on the last line."""
