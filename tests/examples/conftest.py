import pytest

from .support import plant


@pytest.fixture
def tree(tmp_path):
    return plant(tmp_path / "tree")
