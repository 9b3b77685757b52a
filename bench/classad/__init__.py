"""How fast the ClassAd library is: `python -m bench.classad`."""
