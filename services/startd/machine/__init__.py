"""What the machine is, has, and is busy with."""
