"""The example's room for a daemon whose time a test chooses: WALK_AT is what its clock says at start (ms since the epoch)."""

import os

import perdure

from examples.room import app


class LaterClock(perdure.SystemClock):
    """The machine's clock, set to another time."""

    def __init__(self, at):
        super().__init__()
        self._ahead = at - super().now()

    def now(self):
        return super().now() + self._ahead


def clock():
    """Give the clock of the chosen time, or the machine's."""
    at = os.environ.get("WALK_AT")
    return LaterClock(int(at)) if at else perdure.SystemClock()


def setup():
    """Give the room, with a model that answers at once and the chosen time."""
    return app.setup() | {"models": [perdure.ScriptedModel(app.brain)], "clock": clock()}
