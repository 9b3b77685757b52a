"""Forms with files, in whatever pieces they come."""

import io
import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway import multipart
from services.gateway.multipart import BadForm, Form, plain_name

TYPE = 'multipart/form-data; boundary="XX"'


def body(*fields, end="--XX--\r\n"):
    """(headers behind form-data;, content) each."""
    made = b""
    for disposition, content in fields:
        head = f"--XX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()
        made += head + (content if isinstance(content, bytes) else content.encode()) + b"\r\n"
    return made + end.encode()


def read(data, cuts=(), most=1 << 20, kind=TYPE):
    """(texts, files) of a form that comes in pieces."""
    kept = {}

    class Kept(io.BytesIO):
        def close(self):
            kept[self.name] = self.getvalue()

    def open_file(name):
        sink = Kept()
        sink.name = name
        return sink

    form = Form(kind, open_file, as_text=("description",), most=most)
    places = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(places):
        form.feed(data[start:end])
    form.finish()
    return form.texts, kept


FORM = body(
    ('name="description"; filename="job.sub"', "executable = x\nqueue\n"),
    ('name="files"; filename="data/x.bin"', bytes(range(256)) + b"\r\n--X"),
    ('name="files"; filename="empty"', b""),
    ('name="directory"', "/home/ü"),
)


@given(st.lists(st.integers(0, len(FORM)), max_size=20))
@settings(max_examples=40)
def test_a_form_is_the_same_in_any_pieces(cuts):
    texts, files = read(FORM, cuts)
    assert texts == {"description": "executable = x\nqueue\n", "directory": "/home/ü"}
    assert files == {"data/x.bin": bytes(range(256)) + b"\r\n--X", "empty": b""}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (FORM[:-8], "breaks off"),
        (b"no form", "can not be read"),
        (body(('name="files"; filename="../x"', "")), "no name for a file"),
        (body(('name="files"; filename="/etc/x"', "")), "no name for a file"),
        (body(('name="files"; filename="a/./b"', "")), "no name for a file"),
        (body(('name="files"; filename=""', "")), "no name for a file"),
        (body(('name="files"; filename="x"', ""), ('name="files"; filename="x"', "")), "comes twice"),
        (body(('name="directory"', ""), ('name="directory"', "")), "comes twice"),
        (body(('name="else"; filename="x"', "")), "go in the field files"),
        (body(('name="description"', b"\xff")), "no UTF-8"),
    ],
)
def test_a_bad_form_is_refused_with_the_reason(data, says):
    with pytest.raises(BadForm, match=says):
        read(data)


def test_too_much_is_told_as_such(monkeypatch):
    with pytest.raises(BadForm, match="more than 1 MiB") as caught:
        read(body(('name="files"; filename="x"', b"x" * ((1 << 20) + 1))))
    assert caught.value.too_large
    monkeypatch.setattr(multipart, "MOST_TEXT", 10)
    with pytest.raises(BadForm, match="more than 10 bytes"):
        read(FORM)
    monkeypatch.setattr(multipart, "MOST_PARTS", 3)
    with pytest.raises(BadForm, match="more than 3 parts"):
        read(body(*[(f'name="files"; filename="{n}"', "") for n in range(4)]))


def test_headers_of_a_part_are_bounded():
    endless = b"--XX\r\n" + b"X-Long: " + b"x" * 20_000
    with pytest.raises(BadForm, match=r"too long|Maximum header size"):
        read(endless)


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=XX"])
def test_what_is_no_form_is_told_how(kind):
    with pytest.raises(BadForm, match="curl -F"):
        read(FORM, kind=kind)


@given(st.text(max_size=30))
@settings(max_examples=200)
def test_no_name_leads_out(name):
    try:
        plain = plain_name(name)
    except BadForm:
        return
    assert os.path.normpath(os.path.join("/root", plain)) == os.path.join("/root", plain)
