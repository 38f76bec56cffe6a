"""The commands of manage.py for nodes."""
