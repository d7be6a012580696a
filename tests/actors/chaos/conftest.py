import pytest
import structlog


@pytest.fixture(autouse=True)
def _quiet_log():
    """These tests crash things by the hundred; a rendered traceback costs more than the crash."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()
