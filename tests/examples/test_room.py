"""The room's agent, without its page: tests/actors/gateway/test_browser.py opens that."""

import asyncio

import perdure
from room.app import brain, setup


def test_the_rooms_agent_inspects_asks_for_approval_and_delegates(monkeypatch):
    monkeypatch.delenv("ROOM_MODEL", raising=False)

    async def main():
        made = setup()
        agent = made.pop("agent")
        clock = perdure.VirtualClock(autojump=True)
        made["models"] = [perdure.ScriptedModel(brain, clock=clock)]
        async with perdure.System.open(perdure.MemoryStorage(), clock=clock, **made) as system:
            root = await (await system.session("room")).root(agent=agent)
            assert "harbour: four parts" in (await (await root.submit("inspect harbour")).wait()).answer.text
            assert "lighthouse" in (await (await root.submit("ask a colleague")).wait()).answer.text
            deploying = await root.submit("deploy")
            async with await root.watch() as watch:
                async for view, _ in watch:
                    slots = view["docs"]["pi.live"].get("tools", [])
                    if slots and "approval" in slots[0]:
                        break
            await root.approve(slots[0]["callId"], slots[0]["approval"]["hash"])
            assert "1.2.3 is out" in (await deploying.wait()).answer.text

    asyncio.run(main())
