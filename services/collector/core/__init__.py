"""The collector's decisions: pure functions and plain classes."""
