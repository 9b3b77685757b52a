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
        """Raises ValueError when the stream is not made of frames."""
        self.buffer += data
        frames: list[Frame] = []
        while len(self.buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self.buffer)
            if length > MAX_FRAME:
                raise ValueError(f"a frame of {length} bytes")
            end = LENGTH.size + length
            if len(self.buffer) < end:
                break
            frames.append(json.loads(bytes(self.buffer[LENGTH.size : end])))
            del self.buffer[:end]
        return frames
