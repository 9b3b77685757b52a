"""Where requests from the bus are answered."""
