from .support import EXAMPLES, run

QUICKSTART = EXAMPLES / "quickstart.py"


def test_the_quickstart_answers_and_when_run_again_answers_from_its_store(tmp_path):
    for _ in range(2):
        done = run("quickstart.py", cwd=tmp_path)

        assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


def test_the_quickstart_has_at_most_25_lines():
    assert len(QUICKSTART.read_text().splitlines()) <= 25


def test_the_readme_prints_the_quickstart_as_it_is():
    readme = (EXAMPLES.parent / "README.md").read_text()
    after_heading = readme.partition("Quickstart\n")[2]
    block = after_heading.partition("```python\n")[2].partition("```")[0]

    assert block == QUICKSTART.read_text()
