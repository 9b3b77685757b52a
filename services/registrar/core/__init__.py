"""What the registrar decides. Pure."""
