from perdure.actors.models import (
    SystemMessage,
    ToolRef,
    ToolSpec,
    UserMessage,
    current_system,
    current_tools,
    system_update,
)


def spec(name, description=""):
    return ToolSpec(name=name, description=description, parameters={"type": "object"})


def test_tools_are_replayed_in_order_with_removals_before_additions():
    messages = [
        SystemMessage(tools_added=[spec("read"), spec("write")]),
        UserMessage(content="Hi"),
        SystemMessage(tools_removed=[ToolRef(name="read")], tools_added=[spec("read", "new"), spec("grep")]),
        SystemMessage(tools_removed=[ToolRef(name="unknown")]),
    ]
    assert current_tools(messages) == [spec("write"), spec("read", "new"), spec("grep")]


def test_a_tool_that_is_added_again_keeps_its_place():
    messages = [SystemMessage(tools_added=[spec("a"), spec("b")]), SystemMessage(tools_added=[spec("a", "new")])]
    assert current_tools(messages) == [spec("a", "new"), spec("b")]


def test_the_prompt_is_all_contents_then_the_sections_that_are_left():
    messages = [
        SystemMessage(content="Base", sections={"cwd": "in /a", "mode": "plan"}),
        SystemMessage(sections={"cwd": "in /b", "mode": None, "blank": " "}),
        SystemMessage(content="More"),
    ]
    assert current_system(messages) == "Base\n\nMore\n\nin /b"


def test_a_change_in_mid_conversation_names_what_no_longer_holds():
    change = SystemMessage(content="New rule", sections={"mode": None, "cwd": "in /b"})
    assert system_update(change) == 'New rule\n\nThe section "mode" no longer applies.\n\nin /b'
    assert system_update(SystemMessage(tools_added=[spec("a")])) == ""
