"""The commands of manage.py for gateway."""
