"""What an operator runs of gateway by `manage.py`."""
