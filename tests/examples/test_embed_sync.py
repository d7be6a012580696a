import random
import subprocess

from .support import command, run

SAID = "ada: 2 apples: 6 euros\nbob: 7 pears: 21 euros\neve: 1 melon: 3 euros\n"


def test_threads_get_their_answers_and_a_second_run_gets_the_same_from_the_store(tmp_path):
    for _ in range(2):
        done = run("embed_sync.py", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, SAID), done.stderr


def test_killed_at_any_instant_each_order_is_answered_once(tmp_path):
    dice = random.Random(3)
    for _ in range(3):
        process = subprocess.Popen(command("embed_sync.py"), cwd=tmp_path, stdout=subprocess.DEVNULL)
        try:
            process.wait(dice.uniform(0.5, 1.5))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert run("embed_sync.py", cwd=tmp_path).stdout == SAID
