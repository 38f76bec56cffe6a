"""The doctor's checks: one module a group, each with its catalogue."""
