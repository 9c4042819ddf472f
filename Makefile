# Everything runs from .venv, made on first use from the package index alone.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test test-all check reproduce bench format clean

run: $(READY)
	$(BIN)/python examples/slider_crank.py

test: check
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

test-all: check
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2

reproduce: $(READY)
	$(BIN)/python -m reproduce

bench: $(READY)
	$(BIN)/python -m pip install -q --group bench --group peers
	$(BIN)/python -m benchmarks.work_precision
	$(BIN)/python -m benchmarks.costs
	$(BIN)/python -m benchmarks.heavy_top
	$(BIN)/python -m benchmarks.native
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.rods
	$(BIN)/python -m benchmarks.scale_profile
	$(BIN)/python -m benchmarks.multibody

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q -e . --group dev
	touch $@
