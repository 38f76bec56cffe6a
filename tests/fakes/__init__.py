"""Stand-ins at the ports: a machine, a fetcher, an engine."""
