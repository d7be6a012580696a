"""B107: pictures that no provider would take are refused as the error of one call."""

import base64
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.models import Image
from perdure.actors.models.images import MAX_BYTES, ImageRefused, checked, picture

JPEG = (
    base64.b64decode(
        "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////"
        "wgALCAABAAEBAREA/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABPxA="
    )
    + b"\xff\xd9"
)
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
WEBP = base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")


def png(width, height, data=b""):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = data or zlib.compress((b"\0" + b"\0\0\0" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (png(2, 3), "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP, "image/webp"),
        (png(8_000, 1), "image/png"),
    ],
)
def test_a_whole_picture_is_shown_as_what_it_is(data, mime_type):
    """B107: whatever its name says."""
    shown = picture(data)
    assert (shown.mime_type, base64.b64decode(shown.data)) == (mime_type, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no picture",
        png(9_000, 10),
        png(0, 10),
        png(1, 1)[:-1],
        png(1, 1)[:-12],
        png(1, 1)[:20],
        JPEG[:-2],
        JPEG[:10] + b"\xff\xd9",
        GIF[:-1],
        WEBP[:-1],
        png(10, 10, b"x" * MAX_BYTES),
    ],
)
def test_a_picture_that_is_empty_cut_or_too_large_is_refused(data):
    """B107"""
    with pytest.raises(ImageRefused):
        picture(data)


@given(st.sampled_from([png(2, 2), JPEG, GIF, WEBP]), st.integers(0, 200), st.binary(max_size=8))
def test_whatever_the_bytes_it_is_a_picture_or_refused(data, at, noise):
    with suppress(ImageRefused):
        picture(data[:at] + noise + data[at + len(noise) :])


def test_a_block_becomes_what_its_data_is_and_is_refused_when_that_is_nothing():
    """B107: a PNG that was declared as JPEG."""
    data = base64.b64encode(png(2, 2)).decode()
    assert checked(Image(data=data, mime_type="image/jpeg")) == Image(data=data, mime_type="image/png")
    for bad in ("", "no base64!", "ä", data[:-8]):
        with pytest.raises(ImageRefused):
            checked(Image(data=bad, mime_type="image/png"))
