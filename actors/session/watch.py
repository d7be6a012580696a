"""Watching one document: its committed values and the exact operations between them.

Proved by tests/actors/session/test_watch.py.
"""

from typing import Any

from ...chord import Watch
from .core import SessionCore
from .documents import Doc
from .publication import Publication
from .read import still


async def watch_document(
    core: SessionCore, doc: Doc[Any], scope_id: int | None = None, *, key: str | None = None
) -> Watch | None:
    """Watch the incarnation that is alive now, or give None. It ends "retired" with the document, "closed" with the session.

    It outlives passivation and keeps no session in memory.
    """
    address = doc.address(scope_id, key)
    async with still(core):
        loaded = await core.document(doc, address)
        if loaded is None:
            return None
        document = loaded.record.id

        def published(publication: Publication) -> None:
            for change in publication.documents:
                if change.record.id == document:
                    watch.push(change.value, change.ops)
                    if change.value is None:
                        watch.end("retired")

        dispose = core.subscribe(published, lambda: watch.end("closed"), moved=lambda _: None)
        watch = Watch(loaded.tracker.value, dispose)
        return watch
