import random
import subprocess

from .support import command, run

SAID = "ping struck 50, pong struck 50\n"


def test_two_sessions_play_by_messages_and_a_second_run_finds_the_game_over(tmp_path):
    for _ in range(2):
        done = run("ping_pong.py", cwd=tmp_path)

        assert (done.returncode, done.stdout) == (0, SAID), done.stderr


def test_killed_at_any_instant_the_game_goes_on_with_the_same_ball(tmp_path):
    """B062, B064: a ball that was lost or struck twice would change the count, or end the game for good."""
    dice = random.Random(7)
    for _ in range(4):
        process = subprocess.Popen(command("ping_pong.py"), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        try:
            process.wait(dice.uniform(0.4, 1.2))
        except subprocess.TimeoutExpired:
            process.kill()
        said, _ = process.communicate()
        if process.returncode == 0:
            break
    assert said in ("", SAID)
    assert run("ping_pong.py", cwd=tmp_path).stdout == SAID
