"""The operator's doors: admin pages, the REST API, and the commands that start and stop everything."""
