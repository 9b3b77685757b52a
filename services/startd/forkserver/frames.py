"""Frames on all sockets of the fork server: 4 bytes length (big endian), then JSON."""

import json
import struct

LENGTH = struct.Struct(">I")
MAX_FRAME = 64 * 1024 * 1024

Frame = dict[str, object]


def pack(frame: Frame) -> bytes:
    data = json.dumps(frame, separators=(",", ":")).encode()
    return LENGTH.pack(len(data)) + data


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are whole now. Raises ValueError when the stream is not made of frames."""
        self.add(data)
        frames: list[Frame] = []
        while (frame := self.next()) is not None:
            frames.append(frame)
        return frames

    def add(self, data: bytes) -> None:
        self.buffer += data

    def next(self) -> Frame | None:
        """The next frame that is whole. Raises ValueError when the stream is not made of frames."""
        if len(self.buffer) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self.buffer)
        if length > MAX_FRAME:
            raise ValueError(f"a frame of {length} bytes")
        end = LENGTH.size + length
        if len(self.buffer) < end:
            return None
        frame: Frame = json.loads(bytes(self.buffer[LENGTH.size : end]))
        del self.buffer[:end]
        return frame

    def unread(self, frame: Frame) -> None:
        """It comes again next."""
        self.buffer[:0] = pack(frame)
