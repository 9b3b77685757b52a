"""The journal's decisions: pure functions and plain classes."""
