"""NVIDIA cards: who is asked, what they answer in which spelling, and what it means."""
