"""The control plane: Django applications, each depending downwards only."""
