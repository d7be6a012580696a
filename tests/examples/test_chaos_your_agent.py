from .support import EXAMPLES, run


def test_the_chaos_example_finds_nothing_and_would_find_a_tool_that_lies(tmp_path):
    done = run("chaos_your_agent.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("20 actors, 20 pairs: 0 violations\n")
    text = (EXAMPLES / "chaos_your_agent.py").read_text()
    assert len(text.splitlines()) <= 40
    lying = tmp_path / "lying.py"
    lying.write_text(text.replace("@perdure.tool ", '@perdure.tool(replay="safe") '))
    done = run(lying)
    assert done.returncode == 1
    assert "refunded 2 times" in done.stderr
    assert "python -m perdure.testing replay" in done.stderr
