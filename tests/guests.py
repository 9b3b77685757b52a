"""Boot sectors: the smallest guests that a virtual machine can have. They speak on the first serial port, and power off
by the ACPI registers of QEMU's `pc` machine."""

#: ACPI's power management: status and what it is to tell of (bit 8: the power button), and control.
_STATUS, _ENABLE, _CONTROL = 0x600, 0x602, 0x604


def _say(text: str, at: int) -> bytes:
    """Code at this address, with its text behind it."""
    #      mov si, text; again: lodsb; test al, al; jz done; mov dx, 0x3f8; out dx, al; jmp again; done: jmp over
    code = bytearray(b"\xbe\0\0\xac\x84\xc0\x74\x06\xba\xf8\x03\xee\xeb\xf5\xeb\0")
    code[1:3] = (0x7C00 + at + len(code)).to_bytes(2, "little")
    words = text.encode() + b"\0"
    code[-1] = len(words)
    return bytes(code) + words


def _image(*parts: str) -> bytes:
    """parts: "off", "button" (wait for it), "forever", or a text to say."""
    code = b"\xfa\x31\xc0\x8e\xd8"  # cli; xor ax, ax; mov ds, ax
    for part in parts:
        if part == "off":  # mov dx, CONTROL; mov ax, 0x2000; out dx, ax
            code += b"\xba" + _CONTROL.to_bytes(2, "little") + b"\xb8\x00\x20\xef"
        elif part == "button":  # mov dx, ENABLE; mov ax, 0x100; out dx, ax; mov dx, STATUS; again: in ax, dx; test ...
            code += b"\xba" + _ENABLE.to_bytes(2, "little") + b"\xb8\x00\x01\xef"
            code += b"\xba" + _STATUS.to_bytes(2, "little") + b"\xed\xf6\xc4\x01\x74\xfa"
        elif part == "forever":  # jmp here
            code += b"\xeb\xfe"
        else:
            code += _say(part, len(code))
    code += b"\xf4\xeb\xfd"  # hlt, and again
    return (code.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")


#: Says so and powers off.
GREETING = _image("hello from a guest\n", "off")
#: Runs until its power button is pressed.
POLITE = _image("up\n", "button", "bye\n", "off")
#: Hears nothing.
DEAF = _image("up\n", "forever")
