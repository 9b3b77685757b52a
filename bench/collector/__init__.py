"""What the collector costs: `python -m bench.collector` (see __main__)."""
