"""Sends hostile inputs to a real pool and counts what they do: `python -m bench.security` (docs/testing.md)."""
