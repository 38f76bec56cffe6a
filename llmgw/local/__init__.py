"""Runs every process of a small cluster in the foreground, as `manage.py up` does."""
