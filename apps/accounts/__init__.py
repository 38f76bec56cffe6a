"""Operators' one-time sign-in links, management tokens, and the keys of those who call models."""
