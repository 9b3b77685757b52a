"""classad of Roost: ads and expressions, with the interface of HTCondor's older module of that name
(docs/bindings.md)."""

from functools import partial

from classad2 import version

from roost_htcondor import ad_texts, refuse_mixture
from roost_htcondor.ad_texts import lastError, quote, unquote
from roost_htcondor.ad_values import (
    ClassAdEnumError,
    ClassAdEvaluationError,
    ClassAdException,
    ClassAdInternalError,
    ClassAdOSError,
    ClassAdParseError,
    ClassAdTypeError,
    ClassAdValueError,
    Value,
)
from roost_htcondor.ad_values import ParserType as Parser
from roost_htcondor.old_class_ad import (
    Attribute,
    ClassAd,
    ExprTree,
    Function,
    Literal,
    parse,
    parseOld,
    register,
    registerLibrary,
)

refuse_mixture(__file__)

parseAds = partial(ad_texts.parseAds, kind=ClassAd)
parseNext = partial(ad_texts.parseNext, kind=ClassAd)
parseOne = partial(ad_texts.parseOne, kind=ClassAd)
parseOldAds = partial(ad_texts.parseAds, parser=Parser.Old, kind=ClassAd)

__all__ = [
    "Attribute",
    "ClassAd",
    "ClassAdEnumError",
    "ClassAdEvaluationError",
    "ClassAdException",
    "ClassAdInternalError",
    "ClassAdOSError",
    "ClassAdParseError",
    "ClassAdTypeError",
    "ClassAdValueError",
    "ExprTree",
    "Function",
    "Literal",
    "Parser",
    "Value",
    "lastError",
    "parse",
    "parseAds",
    "parseNext",
    "parseOld",
    "parseOldAds",
    "parseOne",
    "quote",
    "register",
    "registerLibrary",
    "unquote",
    "version",
]
