"""Where jobs keep their files."""
