"""What the pool sees of the slots."""
