"""Pictures that a provider will take: known by what they are, whole, and not too large.

One that is refused by a provider would be refused with every later request of its conversation, so it is refused here,
as the error of one call. Proved by tests/actors/models/test_images.py.
"""

import base64
import binascii
import struct

import msgspec

from ...chord import PerdureError
from .messages import Image

MAX_BYTES = 3_750_000
"""Of the file; in base64 it takes a third more, and 5 MB are the least that a provider takes."""
MAX_SIDE = 8_000
_JPEG_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


class ImageRefused(PerdureError, ValueError):
    """No model could be shown this picture, or it is none. Nothing was stored."""


def kind_of(data: bytes) -> str | None:
    """Tell the MIME type of a picture by its first bytes, None for what is none that models know."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def picture(data: bytes) -> Image:
    """Make the block of a picture, of the type that it really has. Raises ImageRefused."""
    mime_type = kind_of(data)
    if mime_type is None:
        raise ImageRefused("this is no PNG, JPEG, GIF or WebP picture")
    if len(data) > MAX_BYTES:
        raise ImageRefused(f"the picture has {len(data):,} bytes; {MAX_BYTES:,} are the most that can be shown")
    size = _size(mime_type, data)
    if size is None:
        raise ImageRefused(f"the {mime_type} picture is damaged or not complete")
    if not 0 < min(size) <= max(size) <= MAX_SIDE:
        raise ImageRefused(
            f"the picture is {size[0]} x {size[1]} pixels; {MAX_SIDE} is the longest side that can be shown"
        )
    return Image(data=base64.b64encode(data).decode(), mime_type=mime_type)


def checked(image: Image) -> Image:
    """Give a picture's block as a provider takes it: of the type that it really has. Raises ImageRefused."""
    try:
        data = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageRefused(f"the data of the {image.mime_type} picture is not base64: {error}") from None
    return msgspec.structs.replace(image, mime_type=picture(data).mime_type)


def _size(mime_type: str, data: bytes) -> tuple[int, int] | None:
    """Give width and height, None for a file that is not whole."""
    try:
        return {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}[mime_type](data)
    except (struct.error, IndexError):
        return None


def _png(data: bytes) -> tuple[int, int] | None:
    width, height = struct.unpack(">II", data[16:24])
    position = 8
    while True:  # chunk by chunk to the last one
        (length,) = struct.unpack(">I", data[position : position + 4])
        if data[position + 4 : position + 8] == b"IEND":
            return (width, height) if len(data) >= position + 12 else None
        position += length + 12


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if b"\xff\xd9" not in data[-512:]:
        return None
    position = 2
    while True:
        marker, length = struct.unpack(">xBH", data[position : position + 4])
        if marker in _JPEG_SIZES:
            height, width = struct.unpack(">HH", data[position + 5 : position + 9])
            return width, height
        position += length + 2


def _gif(data: bytes) -> tuple[int, int] | None:
    width, height = struct.unpack("<HH", data[6:10])
    return (width, height) if data.rstrip(b"\0").endswith(b"\x3b") else None


def _webp(data: bytes) -> tuple[int, int] | None:
    (length,) = struct.unpack("<I", data[4:8])
    if len(data) < length + 8:
        return None
    form = data[12:16]
    if form == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if form == b"VP8L":
        (bits,) = struct.unpack("<I", data[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", data[26:30])
    return width & 0x3FFF, height & 0x3FFF
