"""Reads a multipart form with files as it arrives: texts are kept, files go where `open_file` says. Does no I/O of its
own.

Names of files are relative paths of plain parts; what could lead elsewhere is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

#: Longest text field, longest headers of a part; parts, and directories on the way to a file.
MOST_TEXT: Final = 8 << 20
MOST_HEADERS: Final = 8192
MOST_PARTS: Final = 10_000
MOST_DEPTH: Final = 20


class BadForm(ValueError):
    """The form can not be taken: the text says why. `too_large`: for its size."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


class Sink(Protocol):
    """Where a file goes."""

    def write(self, data: bytes) -> object: ...
    def close(self) -> None: ...


class Form:
    """Fed with a multipart/form-data body. texts: fields by name. `as_text`: fields that are kept as text even when
    they come as files (`-F description=@job.sub`). most: bytes of all files together."""

    def __init__(
        self, content_type: str, open_file: Callable[[str], Sink], *, as_text: tuple[str, ...], most: int
    ) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise BadForm("want multipart/form-data: curl -F description=@job.sub -F files=@input.txt")
        self.texts: dict[str, str] = {}
        self.files: list[str] = []
        self._open_file = open_file
        self._as_text = as_text
        self._left = most
        self._most = most
        self._parts = 0
        self._headers: dict[bytes, bytes] = {}
        self._header = [b"", b""]
        self._text: bytearray | None = None
        self._name = ""
        self._sink: Sink | None = None
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._more_header(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._more_header(1, data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_end,
                "on_part_data": lambda data, start, end: self._data(data[start:end]),
                "on_part_end": self._end,
                "on_end": self._all,
            },
        )

    def feed(self, data: bytes) -> None:
        """Raises BadForm, and OSError where a file can not be written."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise BadForm(f"the form can not be read: {error}") from error

    def finish(self) -> None:
        """That was all. Raises BadForm if it was not."""
        if not self._ended:
            raise BadForm("the form breaks off before its end")

    def close(self) -> None:
        """Let go of a file that is open."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise BadForm(f"more than {MOST_PARTS} parts: pack files, or send a bundle", too_large=True)
        self._headers = {}
        self._header = [b"", b""]

    def _more_header(self, which: int, data: bytes) -> None:
        self._header[which] += data
        if len(self._header[which]) > MOST_HEADERS or len(self._headers) > 20:
            raise BadForm("the headers of a part are too long")

    def _header_end(self) -> None:
        self._headers[self._header[0].lower()] = self._header[1]
        self._header = [b"", b""]

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b"").decode("utf-8", "replace"))
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        named = options.get(b"filename")
        if named is not None and self._name not in self._as_text:
            if self._name != "files":
                raise BadForm(f"a file in field {self._name[:80]!r}: files go in the field files")
            name = plain_name(named.decode("utf-8", "surrogateescape"))
            if name in self.files:
                raise BadForm(f"file {name[:200]} comes twice")
            self.files.append(name)
            self._sink = self._open_file(name)
        else:
            self._text = bytearray()

    def _data(self, data: bytes) -> None:
        if self._sink is not None:
            self._left -= len(data)
            if self._left < 0:
                raise BadForm(
                    f"the files have more than {self._most >> 20} MiB (ROOST_GATEWAY_UPLOAD_MIB); submit with roost "
                    "submit -spool, or send them to a place that transfer_input_files can name",
                    too_large=True,
                )
            self._sink.write(data)
        elif self._text is not None:
            self._text += data
            if len(self._text) > MOST_TEXT:
                raise BadForm(f"field {self._name[:80]!r} has more than {MOST_TEXT} bytes", too_large=True)

    def _end(self) -> None:
        if self._sink is not None:
            self.close()
        elif self._text is not None:
            if self._name in self.texts:
                raise BadForm(f"field {self._name[:80]!r} comes twice")
            try:
                self.texts[self._name] = self._text.decode()
            except UnicodeDecodeError as error:
                raise BadForm(f"field {self._name[:80]!r} is no UTF-8 text: {error}") from error
            self._text = None

    def _all(self) -> None:
        self._ended = True


def plain_name(name: str) -> str:
    """A file's name as a relative path. Raises BadForm."""
    parts = name.split("/")
    bad = [part for part in parts if part in ("", ".", "..") or len(part.encode(errors="surrogateescape")) > 255]
    if bad or len(parts) > MOST_DEPTH or any(ord(letter) < 32 for letter in name):
        raise BadForm(
            f"{name[:200]!r} is no name for a file: want a relative path without dots, such as data/input.txt"
        )
    return name
