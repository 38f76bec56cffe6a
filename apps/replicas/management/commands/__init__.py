"""The commands of manage.py for models, replicas and passes."""
