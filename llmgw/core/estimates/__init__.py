"""What a model needs: its shape, its weights, its cache, and what context fits on which device."""
