"""The commands of manage.py for catalog."""
