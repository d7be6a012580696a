import perdure
import pytest


@pytest.fixture(params=["memory", "sqlite"])
def storage(request, tmp_path):
    """A store of each kind; closing and opening it again is a restart."""
    return perdure.MemoryStorage() if request.param == "memory" else perdure.SqliteStorage(tmp_path / "s.db")
