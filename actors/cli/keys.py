"""Keys of a terminal: what its bytes mean, and the line that is being written. Pure. Tests: tests/actors/cli/test_keys.py."""

import codecs
import re

import msgspec

ENTER, ESCAPE, BACKSPACE, CLEAR, WORD, INTERRUPT, END = (
    "enter",
    "escape",
    "backspace",
    "clear",
    "word",
    "interrupt",
    "end",
)
NAMED = {
    "\r": ENTER,
    "\n": ENTER,
    "\x7f": BACKSPACE,
    "\b": BACKSPACE,
    "\x15": CLEAR,
    "\x17": WORD,
    "\x03": INTERRUPT,
    "\x04": END,
}
SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O\x1b])", re.DOTALL)
PASTE, PASTED = "\x1b[200~", "\x1b[201~"


class Key(msgspec.Struct, frozen=True):
    """A key with a name, or text that was typed or pasted."""

    name: str = ""
    text: str = ""


class Keyboard:
    """Turns what a terminal sends into keys, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""

    def feed(self, data: bytes) -> list[Key]:
        """Give the keys that are complete now. A sole escape is not: more may follow; see ``settle``."""
        self._left += self._decoder.decode(data)
        keys: list[Key] = []
        while self._left:
            key, taken = self._next(self._left)
            if not taken:
                break
            self._left = self._left[taken:]
            if key is not None:
                keys.append(key)
        return keys

    @property
    def unsettled(self) -> bool:
        """Whether an escape waits for what may follow."""
        return self._left.startswith("\x1b")

    def settle(self) -> list[Key]:
        """Nothing has followed for a while: an escape was the key of this name."""
        if not self.unsettled or self._left.startswith(PASTE):
            return []
        self._left = self._left[1:]
        return [Key(ESCAPE), *self.feed(b""), *self.settle()]

    @staticmethod
    def _next(left: str) -> tuple[Key | None, int]:
        """Give the first key and how many characters it takes: 0 when it is not complete, and no key for one without meaning."""
        if left.startswith(PASTE):
            end = left.find(PASTED)
            return (None, 0) if end < 0 else (Key(text=left[len(PASTE) : end].replace("\r", "\n")), end + len(PASTED))
        if left[0] == "\x1b":
            found = SEQUENCE.match(left)
            return None, 0 if found is None else found.end()
        if left[0] in NAMED:
            return Key(NAMED[left[0]]), 1
        return (Key(text=left[0]) if left[0].isprintable() else None), 1


def edit(line: str, key: Key) -> str:
    """Give the line that is being written after a key."""
    if key.name == BACKSPACE:
        return line[:-1]
    if key.name == CLEAR:
        return ""
    if key.name == WORD:
        return re.sub(r"\S*\s*$", "", line)
    return line + key.text
