"""Daemons that are killed again and again while jobs run: every job runs once."""
