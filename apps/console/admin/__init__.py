"""The pages of the admin site. They look across all apps, so they live in the top one."""

from apps.console.admin import accounts, audit, models, nodes, people, replicas, work

__all__ = ["accounts", "audit", "models", "nodes", "people", "replicas", "work"]
