"""Reads: pages, and what is shown of the inside."""

from perdure.actors.gateway.reads import pruned

from .support import go, opened, served


def test_pages_can_be_walked_to_their_end():
    async def main():
        async with opened() as system, served(system) as door:
            for number in range(5):
                await door.post("open", session=f"s{number}", requestId="1")
            found, cursor = [], None
            while True:
                params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
                page = (await door.http.get("/api/sessions", params=params)).json()
                found += [one["key"] for one in page["items"]]
                cursor = page["next"]
                if cursor is None:
                    break
            assert found == [f"s{number}" for number in range(5)]

    go(main)


def test_a_cursor_of_another_order_is_refused():
    async def main():
        async with opened() as system, served(system) as door:
            await door.post("open", session="s", requestId="1")
            for number in range(3):
                await door.post("write", session="s", conversation=1, kind="app.note", requestId=str(number))
            asked = {"session": "s", "conversation": 1, "limit": 1}
            page = (await door.http.get("/api/entries", params=asked)).json()
            other = await door.http.get("/api/entries", params=asked | {"cursor": page["next"], "order": "ascending"})
            assert (other.status_code, other.json()["error"]["code"]) == (400, "storage_rejected")

    go(main)


def test_nobody_reads_about_other_sessions_in_passing():
    tree = {"id": "root", "children": [{"id": "guard:a", "children": []}, {"id": "guard:b", "children": [{"id": "x"}]}]}
    assert pruned(tree, "b") == {
        "id": "root",
        "children": [{"id": "guard:b", "children": [{"id": "x", "children": []}]}],
    }


def test_reading_a_session_that_is_not_there_brings_nothing_into_memory():
    async def main():
        async with opened() as system, served(system) as door:
            answer = await door.http.get("/api/tasks", params={"session": "nobody's"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_session")
            assert system.inspect().figures == {}

    go(main)
