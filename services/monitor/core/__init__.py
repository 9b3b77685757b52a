"""The monitor's decisions: pure functions and plain classes."""
