# Each target sets up what it needs: a virtual environment in .venv, with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
RUN := $(BIN)/async-hfl
# More workers than the two cores of a small machine: many tests wait for processes of their own.
WORKERS ?= 3
# The tests start hundreds of processes, which would all compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: protocol demo test test-long faults restore bench check browser clean

demo: .venv/.ready
	$(RUN) demo

test: check browser
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not long"
	$(RUN) fuzz-faults --seeds 200

# If interrupted, it continues: build/ lists the tests that have passed since the sources last changed.
test-long: check browser
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,ray,torch]"
	$(BIN)/python -m pytest -q --hypothesis-profile searching --resume=build/test-long.txt
	$(RUN) fuzz-faults --seeds 10000 --resume build/fuzz-faults.json
	rm -f build/test-long.txt build/fuzz-faults.json

# Measures every fault with real processes; docs/results/faults.md is written from the rows in build/faults.
faults: .venv/.ready
	$(BIN)/python -m pytest -q tests/deployment/test_fault_rows*.py
	$(BIN)/python tests/deployment/make_fault_table.py

# Measures older copies, flipped bits and random faults; docs/results/restore.md is written from the rows in build/restore.
restore: .venv/.ready
	$(BIN)/python -m pytest -q tests/deployment/test_restored_copies.py tests/deployment/test_flipped_bits.py
	$(RUN) chaos --minutes 10 --json > build/restore/chaos.json
	$(BIN)/python tests/deployment/make_restore_table.py

bench: .venv/.ready
	$(RUN) bench events
	$(BIN)/python benchmarks/engine.py --quick

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Some tests open pages in a real browser. As root, Chromium is installed if it is missing; otherwise they are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && { apt-get install -y -qq chromium >/dev/null 2>&1 \
	|| { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }; } } \
	|| echo "no Chromium: the tests that open pages in a browser are skipped"

# On Debian, ensurepip is in the package python3-venv; as root, it is installed if it is missing.
.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "async-hfl needs Python 3.11 or newer; try make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { test "$$(id -u)" = 0 && apt-get install -y -qq python3-venv; } || { echo "install python3-venv first (apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

# Code from an old protoc runs with old and new protobuf libraries; code from a new one does not run with old ones.
protocol:
	$(PYTHON) -m venv .venv-protoc
	.venv-protoc/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools==1.76.0
	cd src/async_hfl/deployment/protocol && ../../../../.venv-protoc/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. wire.proto
	rm -rf .venv-protoc

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
