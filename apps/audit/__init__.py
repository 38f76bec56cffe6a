"""Who did what, when and why; append-only."""
