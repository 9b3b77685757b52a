"""Compression of ads, alone and in messages (Zstandard).

Ads of a pool are much alike, so a single ad is compressed against a *dictionary* made of some of them: a tenth of its
bytes for 6 us, read again in 2 us. Compressed data is known by its first bytes, which begin no packed ad and no
message, and names its dictionary; everything else is taken as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import zstandard

MAGIC = b"\x28\xb5\x2f\xfd"
#: More than this nothing may grow to, whatever it says of itself.
LARGEST = 16 << 20
LEVEL = 1
#: Size of a dictionary, and how many bytes of ads it is made of.
DICTIONARY_BYTES, SAMPLE_BYTES = 64 << 10, 4 << 20
#: Fewer ads give no useful dictionary.
LEAST_SAMPLES = 100


class UnknownDictionary(ValueError):
    """`number`: of the dictionary that is needed."""

    def __init__(self, number: int) -> None:
        super().__init__(f"compressed with dictionary {number}, which is not known here")
        self.number = number


class _ThreadCompressors(threading.local):
    """Compressors are for one thread at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[tuple[int, int], zstandard.ZstdCompressor] = {}  # by dictionary and its object's id
        self.decompressors: dict[tuple[int, int], zstandard.ZstdDecompressor] = {}


_of_thread = _ThreadCompressors()


def compress(data: bytes) -> bytes:
    """Without a dictionary."""
    return _of_thread.compressor.compress(data)


def decompress(data: bytes) -> bytes:
    """What `compress` was given, or the data itself if it is not compressed. Raises ValueError."""
    if not is_compressed(data):
        return data
    try:
        _check(data)
        return _of_thread.decompressor.decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(f"not compressed as it says: {error}") from error


def is_compressed(data: bytes) -> bool:
    return data.startswith(MAGIC)


def plain_size(data: bytes) -> int:
    """Bytes of what `decompress` would give. Raises ValueError."""
    if not is_compressed(data):
        return len(data)
    try:
        return _check(data)
    except zstandard.ZstdError as error:
        raise ValueError(f"not compressed as it says: {error}") from error


def beginning(data: bytes, size: int) -> bytes:
    """As many first bytes of what `decompress` would give. Raises ValueError."""
    if not is_compressed(data):
        return data[:size]
    try:
        _check(data)
        with _of_thread.decompressor.stream_reader(data) as reader:
            return reader.read(size)
    except zstandard.ZstdError as error:
        raise ValueError(f"not compressed as it says: {error}") from error


def _check(data: bytes) -> int:
    """Bytes that it will have. Raises ValueError."""
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= LARGEST:
        raise ValueError(f"compressed, and of {size} bytes before: at most {LARGEST} are taken")
    return size


def train_dictionary(samples: Sequence[bytes], number: int) -> bytes | None:
    """A dictionary of this number (1 and up) for ads like these; None where they are too few or too odd. Some 0.1 s."""
    if len(samples) < LEAST_SAMPLES:
        return None
    step = max(1, sum(map(len, samples)) // SAMPLE_BYTES + 1)
    try:
        made: bytes = zstandard.train_dictionary(DICTIONARY_BYTES, list(samples[::step]), dict_id=number).as_bytes()
    except zstandard.ZstdError:
        return None
    return made


class AdCompressor:
    """Dictionaries by number, and what is done with them. `current`: the one to compress with, which is the youngest;
    0: none, so nothing is compressed."""

    def __init__(self) -> None:
        self.current = 0
        self._dictionaries: dict[int, tuple[zstandard.ZstdCompressionDict, bytes, float]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._dictionaries

    @property
    def numbers(self) -> list[int]:
        return sorted(self._dictionaries)

    def dictionary(self, number: int) -> tuple[bytes, float]:
        """The bytes, and since when (s since 1970) it is used. Raises KeyError."""
        _, data, since = self._dictionaries[number]
        return data, since

    def add(self, number: int, data: bytes, since: float) -> None:
        """Know a dictionary. Raises ValueError."""
        try:
            made = zstandard.ZstdCompressionDict(data)
            made.precompute_compress(level=LEVEL)
        except zstandard.ZstdError as error:
            raise ValueError(f"dictionary {number} is none: {error}") from error
        self._dictionaries[number] = (made, data, since)
        self.current = max(self._dictionaries, key=lambda known: (self._dictionaries[known][2], known))

    def compress(self, packed: bytes) -> bytes:
        """Compressed, or as it is where there is no dictionary or it would not be shorter."""
        number = self.current
        if not number or is_compressed(packed):
            return packed
        made = self._dictionaries[number][0]
        known = _of_thread.compressors.get((number, id(made)))
        if known is None:
            known = _of_thread.compressors[number, id(made)] = zstandard.ZstdCompressor(level=LEVEL, dict_data=made)
        compressed = known.compress(packed)
        # A copy: the original was made as long as it might have become, and keeps its neighbours that far away.
        return bytes(memoryview(compressed)) if len(compressed) < len(packed) else packed

    def decompress(self, stored: bytes) -> bytes:
        """The packed ad. Raises UnknownDictionary, and ValueError for what is broken."""
        if not is_compressed(stored):
            return stored
        try:
            number = zstandard.get_frame_parameters(stored).dict_id
            if not number:
                return decompress(stored)
            found = self._dictionaries.get(number)
            if found is None:
                raise UnknownDictionary(number)
            _check(stored)
            made = found[0]
            known = _of_thread.decompressors.get((number, id(made)))
            if known is None:
                known = _of_thread.decompressors[number, id(made)] = zstandard.ZstdDecompressor(dict_data=made)
            return known.decompress(stored)
        except zstandard.ZstdError as error:
            raise ValueError(f"not compressed as it says: {error}") from error
