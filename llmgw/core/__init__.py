"""Everything that decides: pure functions of values, with no I/O, no clock and no framework."""
