"""The starter: what runs one job on a slot, from scratch directory to output."""
