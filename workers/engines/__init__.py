"""Touching a running engine: starting it, telling it from a stranger, asking it, ending it."""
