"""The REST API, `/api/v1/`: the same verbs and the same shapes as the console and the command line."""
