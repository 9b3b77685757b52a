"""Priorities, accounting groups, quotas, and what is charged to whom."""
