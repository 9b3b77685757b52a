"""One negotiation cycle: which request gets which slot, and why the others get none."""
