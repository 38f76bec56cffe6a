"""What an operator runs of replicas by `manage.py`."""
