"""What this machine is: one parser for each source of facts, put together by `collect`; what cannot be had is told."""
