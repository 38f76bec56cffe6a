"""What the doctor's checks read beside the inventory: one parser a source, each a function of text."""
