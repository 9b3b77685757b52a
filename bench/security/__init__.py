"""Hostile inputs to a real pool, and what they do: `python -m bench.security` (docs/testing.md). What the walls cost:
`python -m bench.security.costs` (docs/benchmarks.md)."""
