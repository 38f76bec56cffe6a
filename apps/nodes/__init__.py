"""The machines: what they have, how well they are heard, and whether they may take work."""
