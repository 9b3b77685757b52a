"""What slots are made of: resource amounts, and how a partitionable slot is carved."""
