"""The rooster's decisions: pure functions and plain classes."""
