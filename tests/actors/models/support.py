"""What the tests of this room share."""

from types import SimpleNamespace

from perdure.actors.models.turns import arrange


class Collected:
    """A writer that writes nothing down: it keeps the turns."""

    def __init__(self, turns=()):
        self.turns = list(turns)

    def write(self, turn):
        self.turns.append(turn)

    def fork(self):
        return Collected(self.turns)


def arranged(messages, model, **options):
    """A transcript's prompt, its tools, and its turns."""
    prompt, writer = arrange(messages, model, lambda _: Collected(), key="collected", **options)
    return SimpleNamespace(system=prompt.text, tools=list(prompt.tools.values()), turns=writer.turns)
