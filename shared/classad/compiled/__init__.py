"""Expressions as plans, and plans as Python source: what the columnar gear makes of what has no rule on columns."""
