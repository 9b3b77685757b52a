"""Logical lines of a configuration or submit file: continuations, comments, heredocs.

Exactly as the reference reads them ("Configuration" 2, 3 and 10 in the spec's list of corners).
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.errors import Source, config_error


@dataclass(frozen=True, slots=True)
class Line:
    """One logical line without its outer blanks, and the number (from 1) of its first physical line."""

    text: str
    number: int


class Lines:
    """The lines of one file, read once from top to bottom, logical and physical ones in any mixture.

    at: the place to tell for every line instead of its own; a template's lines stand where it is used.
    """

    def __init__(self, text: str, name: str, at: Source | None = None) -> None:
        self.name = name
        self._at = at
        self._physical = text.split("\n")
        self._whole = self._physical[-1] == ""  # the last line has its line end
        if self._whole:
            self._physical.pop()
        self._next = 0

    @property
    def number(self) -> int:
        """The number of the physical line read last; 0 before the first."""
        return self._next

    def here(self, line: Line | None = None) -> Source:
        """The place of `line`, or of the line read last."""
        if self._at is not None:
            return self._at
        return Source(self.name, line.number if line is not None else self._next)

    def physical(self) -> str | None:
        """The next physical line as it stands, without its line end; None at the end."""
        if self._next >= len(self._physical):
            return None
        self._next += 1
        return self._physical[self._next - 1].removesuffix("\r")

    def logical(self) -> Line | None:
        """The next line that is neither blank nor a comment, with its continuations; None at the end.

        Inside a continuation a comment line is dropped, and goes on only if it ends in a backslash itself; a
        blank line ends it. Of two backslashes at a line's end one is left.
        """
        while (raw := self.physical()) is not None:
            text = raw.strip()
            if text and text[0] != "#":
                number = self._next
                return Line(self._continued(text) if text[-1] == "\\" else text, number)
        return None

    def _continued(self, first: str) -> str:
        if self._next == len(self._physical) and not self._whole:
            return first  # nothing can follow: the backslash is text
        parts = [first[:-1]]
        while (raw := self.physical()) is not None:
            text = raw.strip()
            more = text.endswith("\\")
            if not text.startswith("#"):
                parts.append(text[:-1] if more else text)
            if not more:
                break
        return "".join(parts)

    def heredoc(self, tag: str, start: Line) -> str:
        """The lines up to `@tag` alone on a line, joined by newlines; raises ConfigError if it does not come.

        Blank lines and comments are left out, leading blanks removed, continuations joined. The tag counts as
        it is written, upper and lower case.
        """
        end = "@" + tag
        kept: list[str] = []
        while (line := self.logical()) is not None:
            if line.text == end:
                return "\n".join(kept)
            kept.append(line.text)
        raise config_error(
            f"the text that begins with @={tag} has no end", self.here(start), f"write {end} alone on a line behind it"
        )
