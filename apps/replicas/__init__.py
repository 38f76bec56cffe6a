"""Running copies of models: snapshot, plan, order, report."""
