"""A deterministic twin of the whole control loop: one process, a virtual clock, and faults drawn from a seed."""
