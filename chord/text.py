"""Text as JavaScript counts it: UTF-16 code units, and half surrogates that meet or stay alone.

Python counts code points and can hold half a surrogate pair; a JavaScript replica counts units. What crosses the wire
is in units; what is stored must be valid Unicode. Proved by tests/chord/test_text.py and the overlap vectors.
"""

_HIGH = ("\ud800", "\udbff")
_LOW = ("\udc00", "\udfff")


def is_unicode(text: str) -> bool:
    """Whether `text` can be written as UTF-8, that is, holds no surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def valid_text(text: str) -> str:
    """Make `text` valid Unicode: join pairs that were split in two, put U+FFFD for a half that stays alone.

    To be used where text enters from outside (a model, a subprocess, a browser). Returns the same object when nothing
    is wrong with it, which costs O(1) for ASCII and one pass for other text.
    """
    if is_unicode(text):
        return text
    return _units(text).decode("utf-16-le", "replace")


def join_halves(text: str) -> str:
    """Join split surrogate pairs and leave lone halves, so that texts equal in UTF-16 are equal in Python."""
    if is_unicode(text):
        return text
    return _from_units(_units(text))


def append(text: str, chunk: str) -> str:
    """`text + chunk`, with a pair that was split between the two joined."""
    return join_halves(text + chunk) if halves_meet(text, chunk) else text + chunk


def halves_meet(text: str, chunk: str) -> bool:
    """Whether the end of `text` and the start of `chunk` are the two halves of one character."""
    return _LOW[0] <= chunk[:1] <= _LOW[1] and _HIGH[0] <= text[-1:] <= _HIGH[1]


def utf16_length(text: str) -> int:
    """Length of `text` in UTF-16 code units."""
    return len(text) if text.isascii() else len(_units(text)) // 2


def drop_units(text: str, count: int) -> str:
    """`text` without its first `count` UTF-16 units; a cut through a pair leaves its second half."""
    if text.isascii():
        return text[count:]
    # The first `count` units lie within the first `count` code points, so only those need to be looked at.
    head = _units(text[:count])
    return _from_units(head[2 * count :]) + text[count:]


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _from_units(units: bytes) -> str:
    return units.decode("utf-16-le", "surrogatepass")
