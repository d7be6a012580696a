# Every target sets itself up on a machine that has only python3.
PY := .venv/bin/python
STAMP := .venv/.installed
TYPING := .venv/typing

.PHONY: demo room test chaos check bench clean

demo: $(STAMP)
	$(PY) examples/night_shift.py

room: $(STAMP)
	$(PY) -m perdure serve room.db --app examples.room.app:setup

test: $(STAMP)
	$(PY) -m pytest -n auto --dist worksteal

chaos: $(STAMP)
	$(PY) -m pytest -n auto --dist worksteal -m slow

check: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	mkdir -p $(TYPING) && ln -sfn ../.. $(TYPING)/perdure
	cd $(TYPING) && ../bin/python -m mypy --strict -m perdure -m perdure.__main__ -m perdure.gateway -p perdure.actors -p perdure.chord -p perdure.storage -p perdure.supervisors
	$(PY) -m pytest -q tests/test_layering.py

bench: $(STAMP)
	for bench in tests/bench/bench_*.py; do echo "== $$bench"; $(PY) $$bench || exit 1; done

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): pyproject.toml
	test -x $(PY) || python3 -m venv .venv
	$(PY) -m pip install --quiet --upgrade "pip>=25.1"
	$(PY) -m pip install --quiet --editable . --group dev
	touch $(STAMP)
