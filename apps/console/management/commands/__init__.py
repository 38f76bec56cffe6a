"""Commands of manage.py that belong to no single app."""
