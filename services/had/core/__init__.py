"""The HAD's decisions: pure functions and plain classes."""
