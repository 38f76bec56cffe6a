"""Checks everything that a node needs, says what is wrong, what it costs and how to cure it."""
