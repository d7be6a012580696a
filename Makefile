# Every target sets itself up on a machine that has only python3.
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: demo test check bench clean

$(STAMP): pyproject.toml
	python3 -m venv .venv
	$(PY) -m pip install --quiet --upgrade "pip>=25.1"
	$(PY) -m pip install --quiet --editable . --group dev
	touch $(STAMP)

demo: $(STAMP)
	$(PY) examples/night_shift.py

test: $(STAMP)
	$(PY) -m pytest

check: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	mkdir -p build && ln -sfn .. build/perdure && cd build && ../$(PY) -m mypy --strict -p perdure
	$(PY) -m pytest -q tests/test_layering.py

bench: $(STAMP)
	$(PY) -m pytest -q -s tests/bench

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
