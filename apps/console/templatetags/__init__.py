"""What the console's templates say times, sizes and states with."""
