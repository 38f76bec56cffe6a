"""The commands of manage.py for accounts."""
