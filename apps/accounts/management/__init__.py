"""What an operator runs of accounts by `manage.py`."""
