"""The JavaScript client under Node: it does what the reference does, and what the Python view says."""

import json
import shutil
import subprocess
from pathlib import Path

import perdure
import pytest

NODE = shutil.which("node")
HERE = Path(__file__).parent
CLIENT = Path(perdure.__file__).parent / "actors/gateway/static/perdure.js"
VECTORS = HERE.parents[1] / "chord/vectors"

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: the JavaScript client cannot run")


def test_all_chord_vectors_hold_in_javascript():
    files = [CLIENT, VECTORS / "apply.jsonl", VECTORS / "wire.jsonl"]
    done = subprocess.run([NODE, HERE / "vectors.mjs", *files], check=True, capture_output=True, text=True, timeout=50)
    said = json.loads(done.stdout)
    assert said["wrong"] == []
    assert said["cases"] == sum(len(file.read_text().splitlines()) for file in files[1:])
