"""What the dashboard shows, as pure functions over ads and numbers."""
