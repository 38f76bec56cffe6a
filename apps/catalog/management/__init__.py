"""What an operator runs of catalog by `manage.py`."""
