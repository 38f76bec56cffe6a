"""Tells the router where ready replicas are and which keys are good."""
