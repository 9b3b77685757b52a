"""classad2 of Roost: ads and expressions, with the interface of HTCondor's module of that name (docs/bindings.md)."""

from roost_htcondor import API_VERSION, refuse_mixture
from roost_htcondor.ad_texts import lastError, parseAds, parseNext, parseOne, quote, unquote
from roost_htcondor.ad_values import ClassAdException, ParserType, Value
from roost_htcondor.ad_values import ParserType as Parser
from roost_htcondor.class_ad import ClassAd, ExprTree
from shared.version import VERSION

refuse_mixture(__file__)


def version() -> str:
    """The version of the interface, and Roost's."""
    return f"{API_VERSION} (Roost {VERSION})"


__all__ = [
    "ClassAd",
    "ClassAdException",
    "ExprTree",
    "Parser",
    "ParserType",
    "Value",
    "lastError",
    "parseAds",
    "parseNext",
    "parseOne",
    "quote",
    "unquote",
    "version",
]
