"""The control plane: Django apps, lowest first: audit, accounts, catalog and nodes, replicas, gateway, console."""
