"""The commands of manage.py for audit."""
