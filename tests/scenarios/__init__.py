"""The whole product with real processes: what must hold when parts of it die, lie, repeat themselves or come late."""
