"""The tests: the folders mirror the tree that they test."""
