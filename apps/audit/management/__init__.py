"""What an operator runs of audit by `manage.py`."""
