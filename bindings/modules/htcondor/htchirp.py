"""htcondor.htchirp: the distribution htchirp, which HTCondor's has in it. Jobs ask their access point by it
(docs/execution/chirp.md)."""

try:
    from htchirp import HTChirp, condor_chirp  # type: ignore[import-not-found]
except ImportError as missing:
    raise ImportError("htcondor.htchirp is the distribution htchirp: pip install htchirp", name=__name__) from missing

__all__ = ["HTChirp", "condor_chirp"]
