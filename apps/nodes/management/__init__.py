"""What an operator runs of nodes by `manage.py`."""
