"""Defrag's decisions: pure functions and plain classes."""
