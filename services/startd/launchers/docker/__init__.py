"""Jobs in Docker containers."""
