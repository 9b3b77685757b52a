"""Credd: the tokens that an access point keeps for jobs with use_oauth_services."""

from __future__ import annotations

from collections.abc import Sequence

from roost_htcondor.class_ad import ClassAd
from roost_htcondor.constants import CredType
from roost_htcondor.gateway import HTCondorException, Remote, refuse, refused

_NO_PASSWORDS = "jobs run as the accounts of their users, or as those of slots; no password is kept"


class CredCheck:
    """Whether tokens of services are stored."""

    def __init__(self, services: str, url_or_error: str) -> None:
        self._services, self._error = services, url_or_error

    @property
    def services(self) -> str:
        return self._services

    @property
    def present(self) -> bool:
        return not self._error

    @property
    def error(self) -> str | None:
        return self._error or None

    @property
    def url(self) -> str | None:
        """None: no page stores tokens, `add_user_service_cred` does."""
        return None

    def __bool__(self) -> bool:
        return self.present

    def __str__(self) -> str:
        return self._error


class Credd(Remote):
    """The access point's store of tokens, each user's own. Raises HTCondorException."""

    def add_user_service_cred(
        self,
        credtype: CredType,
        credential: bytes,
        service: str,
        handle: str | None = None,
        user: str | None = None,
        refresh: bool | None = None,
    ) -> None:
        """Keep a token of a service."""
        name = _service(credtype, service, handle, user)
        if refresh:
            refuse("refresh", "nobody renews the token here: store it again before it expires")
        with self._gateway() as client:
            client.store_credential(name, credential, self._name)

    def delete_user_service_cred(
        self, credtype: CredType, service: str, handle: str | None = None, user: str | None = None
    ) -> None:
        """Forget it."""
        name = _service(credtype, service, handle, user)
        with self._gateway() as client:
            client.delete_credential(name, self._name)

    def query_user_service_cred(
        self, credtype: CredType, service: str, handle: str | None = None, user: str | None = None
    ) -> str:
        """Since when it is kept, seconds since 1970 as a text. Raises HTCondorException where there is none."""
        name = _service(credtype, service, handle, user)
        stored = self._stored()
        if name not in stored:
            raise HTCondorException(f"there is no token of {name}: store one with add_user_service_cred")
        return str(stored[name])

    def check_user_service_creds(
        self, credtype: CredType, serviceAds: Sequence[ClassAd], user: str | None = None
    ) -> CredCheck:
        """Whether the tokens of services are stored; an ad each, with Service and Handle."""
        names = [_service(credtype, str(ad["Service"]), ad.get("Handle"), user) for ad in serviceAds]
        stored = self._stored()
        missing = [name for name in names if name not in stored]
        told = f"there is no token of {', '.join(missing)}: store one with add_user_service_cred" if missing else ""
        return CredCheck(",".join(names), told)

    def _stored(self) -> dict[str, float]:
        with self._gateway() as client:
            return {str(one["service"]): one["updated"] for one in client.credentials(self._name)}

    add_password = refused("add_password", _NO_PASSWORDS)
    delete_password = refused("delete_password", _NO_PASSWORDS)
    query_password = refused("query_password", _NO_PASSWORDS)
    add_user_cred = refused("add_user_cred", "tokens of services are kept: add_user_service_cred")
    delete_user_cred = refused("delete_user_cred", "see add_user_cred")
    query_user_cred = refused("query_user_cred", "see add_user_cred")
    get_oauth2_credential = refused("get_oauth2_credential", "tokens go to jobs, and to nobody else")


def _service(credtype: CredType, service: str, handle: str | None, user: str | None) -> str:
    if CredType(credtype) is not CredType.OAuth:
        refuse(f"CredType.{CredType(credtype).name}", "tokens of services are CredType.OAuth")
    if user is not None:
        refuse("a credential of another user", "each user keeps his own: leave user out")
    if handle:
        refuse("a handle of a service", "name a service for each of its tokens, and use_oauth_services by these names")
    return service
