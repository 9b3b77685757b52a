"""Signed URLs: the example that the maker of the protocol gives, and its own library's."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.transfer import s3
from shared.transfer.s3 import BadObject, Keys, signed

KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1")
NOON = datetime(2013, 5, 24, tzinfo=UTC).timestamp() + s3.SKEW_S


def test_the_makers_example(monkeypatch):
    monkeypatch.setattr(s3, "GOOD_FOR_S", 86400)
    url = signed("GET", "s3://examplebucket.s3.amazonaws.com/test.txt", KEYS, NOON)
    assert url.startswith("https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&")
    (signature,) = parse_qs(urlsplit(url).query)["X-Amz-Signature"]
    assert signature == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


@pytest.mark.parametrize(
    ("url", "region", "begins", "in_region"),
    [
        ("s3://bucket/a/b", "", "https://bucket.s3.amazonaws.com/a/b?", "us-east-1"),
        ("s3://bucket/a/b", "eu-1", "https://bucket.s3.eu-1.amazonaws.com/a/b?", "eu-1"),
        ("s3://b.c.s3.eu-2.amazonaws.com/k", "eu-1", "https://b.c.s3.eu-2.amazonaws.com/k?", "eu-2"),
        ("s3://Old_One/k", "", "https://s3.amazonaws.com/Old_One/k?", "us-east-1"),
        ("s3://store.example:9000/bucket/k", "", "https://store.example:9000/bucket/k?", "us-east-1"),
        ("s3://localhost:9000/bucket/k", "", "https://localhost:9000/bucket/k?", "us-east-1"),
        ("gs://bucket/k", "", "https://storage.googleapis.com/bucket/k?", "us-east-1"),
        ("s3://bucket/a b/ü+~", "", "https://bucket.s3.amazonaws.com/a%20b/%C3%BC%2B~?", "us-east-1"),
    ],
)
def test_forms_of_urls(url, region, begins, in_region):
    found = signed("PUT", url, Keys("a", "s", region), NOON)
    assert found.startswith(begins)
    assert f"%2F{in_region}%2Fs3%2Faws4_request" in found


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3:///key", "s3://b/k?acl", "s3://b/k#x"])
def test_what_names_no_object(url):
    with pytest.raises(BadObject, match="s3://BUCKET/KEY"):
        signed("GET", url, KEYS, NOON)


_KEY = st.text(st.characters(codec="utf-8", exclude_characters="?#\0", exclude_categories=("Cs", "Cc")), min_size=1)


@given(
    _KEY, st.sampled_from(("GET", "PUT")), st.sampled_from(("us-east-1", "eu-central-1")), st.sampled_from(("", "t/+="))
)
def test_as_the_makers_library_signs(key, method, region, session):
    auth = pytest.importorskip("botocore.auth")
    awsrequest = pytest.importorskip("botocore.awsrequest")
    credentials = pytest.importorskip("botocore.credentials")
    keys = Keys("AKIA/+", "secret/+=", region, session)
    ours = signed("PUT" if method == "PUT" else "GET", f"s3://store.example:9000/bucket/{key}", keys, NOON)
    parts = urlsplit(ours)
    signer = auth.S3SigV4QueryAuth(
        credentials.ReadOnlyCredentials(keys.access, keys.secret, session or None), "s3", region, expires=s3.GOOD_FOR_S
    )
    request = awsrequest.AWSRequest(method, f"https://{parts.netloc}{parts.path}")
    request.context["timestamp"] = parse_qs(parts.query)["X-Amz-Date"][0]
    request.headers["host"] = parts.netloc
    string = signer.string_to_sign
    signer._modify_request_before_signing(request)
    signature = signer.signature(string(request, signer.canonical_request(request)), request)
    assert parse_qs(parts.query)["X-Amz-Signature"] == [signature]
