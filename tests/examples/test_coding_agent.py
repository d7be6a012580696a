from .support import run


def test_the_coding_agent_mends_a_project_and_when_run_again_answers_from_its_store(tmp_path):
    for _ in range(2):
        done = run("coding_agent.py", tmp_path / "project")

        assert done.returncode == 0, done.stderr
        assert done.stdout == "Mended: the mean was one too small. The tests say: all well\n"
    assert (tmp_path / "project" / "stats.py").read_text().endswith("return sum(values) / len(values)\n")
