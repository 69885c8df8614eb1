# Every target sets up what it needs in .venv; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SPEC := pyproject.toml constraints.txt

.PHONY: demo test test-slow check format docs pages wheel release clean

demo: .venv/.demo  ## train a ranker on scikit-learn's digits, print its table, draw its picture
	OMP_NUM_THREADS=1 $(BIN)/python examples/digits.py --output runs/digits # too small for two threads

test: .venv/.dev  ## the tests, without the slow ones
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: .venv/.dev  ## the slow ones
	$(BIN)/python -m pytest -m slow -n 2 --dist worksteal

check: .venv/.dev  ## format, lint, words, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell ltr docs tests benchmarks examples recipes tools README.md CONTRIBUTING.md
	$(BIN)/pyright

format: .venv/.dev  ## rewrite the files as `make check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/.docs  ## the site, strict, in site/
	$(BIN)/mkdocs build --strict

pages: .venv/.docs  ## the tables and pictures of the pages, from the results of the benchmarks
	$(BIN)/python docs/gallery.py
	$(BIN)/python docs/operator_plots.py
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/speed.py
	$(BIN)/python docs/kernel_table.py
	$(BIN)/python docs/metric_tables.py
	$(BIN)/python docs/loss_speed.py
	$(BIN)/python docs/soft_ndcg.py
	$(BIN)/python docs/rerankers.py
	$(BIN)/python docs/quality_tables.py
	$(BIN)/python docs/sizing.py
	$(BIN)/python docs/recipe_pages.py
	$(BIN)/python docs/llms.py
	$(BIN)/python docs/examples.py

wheel: .venv/.dev  ## the wheel of a release, in dist/; the same files give the same bytes
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

release: check test docs .venv/.release  ## all of a release but the upload: tests, site, checked files
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*
	tools/smoke.sh dist/*.whl

.venv/.base:
	$(PYTHON) -m venv .venv
	touch $@

.venv/.demo: .venv/.base $(SPEC)
	$(PIP) --editable '.[plots]'
	touch $@

.venv/.dev: .venv/.base $(SPEC)
	$(PIP) --editable '.[plots,dev]'
	touch $@

.venv/.release: .venv/.dev
	$(PIP) twine
	touch $@

.venv/.docs: .venv/.base $(SPEC)
	$(PIP) --editable '.[plots,docs]'
	touch $@

clean:
	rm -rf .venv dist site
