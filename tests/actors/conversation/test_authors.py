"""Who says something, where several people do."""

import perdure
import pytest

from .support import answering, go, scene


def test_an_author_is_kept_with_what_was_said_and_the_model_is_not_told(storage):
    async def main():
        async with scene(answering("hello"), storage=storage) as there:
            await there.ask("hi", author="Ada")
            entries = (await there.root.entries(order="ascending")).items
            assert [entry.data for entry in entries][:1] == [{"author": "Ada"}]
            assert "Ada" not in repr(there.model.calls[0].messages)
            for wrong in ("", "  ", "x" * 257, 7):
                with pytest.raises(perdure.InvalidValue):
                    await there.root.submit("hi", author=wrong)

    go(main)
