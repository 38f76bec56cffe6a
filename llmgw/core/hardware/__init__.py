"""What a machine's hardware is, as facts: cards, adapters, fabrics, and what is wrong with them."""
