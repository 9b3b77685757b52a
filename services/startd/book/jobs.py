"""The ads of jobs on claims as policies see them: as submitted, with what is measured of the run and how it goes."""

from __future__ import annotations

from collections.abc import Mapping

from services.startd.book.slots import Claim
from shared.classad import ClassAd

#: When so many more ads are kept than there are claims, those of claims that are gone go.
_SPARE = 64


class Jobs:
    """See the module. `claims`: by id, all that there are."""

    def __init__(self, claims: Mapping[str, Claim]) -> None:
        self._claims = claims
        self._ads: dict[str, tuple[bytes, ClassAd]] = {}  # by claim id, with what it was made of
        self._measured: dict[str, tuple[str, dict[str, object]]] = {}  # by claim id: of which run, what

    def ad(self, claim: Claim) -> ClassAd:
        """The job that runs on a claim, or the last one that did. Belongs to this class: change nothing in it."""
        packed, ad = self._ads.get(claim.claim_id, (b"", None))
        if ad is None or packed is not claim.job_ad:
            ad = ClassAd.unpack(claim.job_ad)
            if len(self._ads) > len(self._claims) + _SPARE:
                self._ads = {key: one for key, one in self._ads.items() if key in self._claims}
                self._measured = {key: one for key, one in self._measured.items() if key in self._claims}
            self._ads[claim.claim_id] = claim.job_ad, ad
            run, measured = self._measured.get(claim.claim_id, ("", {}))
            if run == claim.run:
                ad.update(measured)
        ad["JobState"] = "Suspended" if claim.suspended_at else "Running"
        if claim.run:
            ad["JobCurrentStartDate"] = int(claim.run_since)
        return ad

    def measured(self, claim: Claim, attributes: Mapping[str, object]) -> None:
        """What is measured of the run on a claim: attributes of its job."""
        self._measured[claim.claim_id] = claim.run, dict(attributes)
        self._ads.pop(claim.claim_id, None)
