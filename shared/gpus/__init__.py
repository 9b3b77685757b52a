"""GPUs: what a machine has of them, told as HTCondor's discovery tells it, and how busy they are."""
