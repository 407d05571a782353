# `make` lists the targets. Each one does the set-up it needs: Python 3.11 or newer is enough.

VENV  ?= .venv
TORCH ?= torch==2.13.0
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
# Twice quiet: errors only.
PIP   := $(BIN)/python -m pip -qq --disable-pip-version-check
ARGS  ?=
# Not one for each processor: a container may show more of them than it may use.
WORKERS ?= 2
OLDEST ?= .venv-oldest
MHA_PARITY_FUZZ ?= 1000

.DEFAULT_GOAL := help
.PHONY: help setup parity test bench bench-series lint types tests test-all format calibrate accuracy mutants mutation figures corpus corpus-mutants docs fuzz release torch-versions test-frameworks test-languages test-oldest clean

help: ## list these targets
	@echo "mha-parity: does an attention compute what torch.nn.MultiheadAttention computes?"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile \
		| while IFS='|' read -r name what; do printf '  make %-16s %s\n' "$$name" "$$what"; done
	@echo
	@echo "  PYTHON=...       the Python to build $(VENV) with (3.11 or newer; found by itself)"
	@echo "  TORCH_INDEX=...  the package index to take torch from (say, one with CPU builds)"
	@echo "  ARGS=...         more arguments for the command or for pytest"
	@echo "  WORKERS=...      processes that run the tests: 2 by default, best one for each processor"

parity: $(READY) ## judge the NumPy attention against torch and print the report
	@$(BIN)/mha-parity check $(ARGS)

test: lint types tests ## lint, types and all tests

lint: $(READY) ## check style and format
	@echo "ruff: style and format"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . \
		|| { echo "\`make format\` puts these files right." >&2; exit 1; }

types: $(READY) ## check the types
	@echo "mypy: types"
	@$(BIN)/mypy --no-error-summary

# Bare pytest, not `python -m pytest`, which would put the repository root on sys.path.
tests: $(READY) ## run all tests, without lint and types
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

test-all: $(READY) ## run all tests, those too that repeat a proof in further styles and seeds
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not languages" $(ARGS)

bench: $(READY) ## time the NumPy attention beside torch's paths, and say the ratios
	@$(BIN)/mha-parity bench $(ARGS)

bench-series: $(READY) ## time single calls, as a series to store and compare
	@$(BIN)/pytest -q --benchmark-enable --benchmark-only --benchmark-group-by=group \
		--benchmark-sort=mean --benchmark-columns=min,median,iqr,rounds \
		parity_tests/tests/bench/test_attention.py $(ARGS)

calibrate: $(READY) ## measure the factor k of the judging rule and its false-alarm rate
	@$(BIN)/python -m mha_parity.selftest.calibrate $(ARGS)

accuracy: $(READY) ## measure the NumPy attention's errors beside torch's over 10,000 cases a dtype
	@$(BIN)/python -m mha_parity.selftest.accuracy_survey $(ARGS)

mutants: $(READY) ## run the suite on every wrong attention of the catalogue
	@$(BIN)/mha-parity mutants $(ARGS)

mutation: $(VENV)/.mutation ## change the deciding code at random places, and count what a test sees
	@$(BIN)/python -m mha_parity.selftest.mutation_score $(ARGS)

figures: $(READY) ## compute the published figures anew (hours), and say which moved
	@$(BIN)/python -m mha_parity.selftest.figures $(ARGS)

corpus: $(READY) ## judge public attentions: make corpus ARGS=SOURCES, where their sources lie
	@$(BIN)/python -m mha_parity.selftest.corpus_run $(ARGS)

corpus-mutants: $(READY) ## judge them with one change each: make corpus-mutants ARGS='SOURCES --seed 1'
	@$(BIN)/python -m mha_parity.selftest.corpus_mutants $(ARGS)

docs: $(VENV)/.docs ## build the documentation site in build/docs; each code cell is run
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html parity_tests/docs build/docs
	@echo "build/docs/index.html is ready"

fuzz: $(READY) ## read random ids, options, notebooks, messages and files
	@MHA_PARITY_FUZZ=$(MHA_PARITY_FUZZ) $(BIN)/pytest -q parity_tests/tests/fuzz $(ARGS)

test-frameworks: $(VENV)/.frameworks ## install JAX, flax, haiku, equinox, Keras and ONNX, and judge their attention layers
	@$(BIN)/pytest -q -m frameworks $(ARGS)

test-languages: $(READY) ## judge the clients in C, Rust and JavaScript (gcc, rustc, node)
	@$(BIN)/pytest -q -m "" parity_tests/tests/targets/programs/test_command.py $(ARGS)

test-oldest: $(OLDEST)/.ready ## run all tests on the oldest releases that are allowed
	@$(OLDEST)/bin/pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

torch-versions: $(OLDEST)/.ready ## say path by path what changed since the oldest torch that is allowed
	@mkdir -p build
	@$(OLDEST)/bin/mha-parity record torch.nn:MultiheadAttention --cases 500 -o build/oldest.safetensors
	@$(BIN)/python -m mha_parity.selftest.torch_versions build/oldest.safetensors $(ARGS)

release: $(READY) ## build what a release carries: sdist, wheel, and the recorded answers of 500 cases
	@$(BIN)/pyproject-build --no-isolation --outdir dist . >/dev/null
	@$(BIN)/mha-parity record --cases 500 --compact -o dist/answers.safetensors

format: $(READY) ## put style and format right where a tool can
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

setup: $(READY) ## build the environment in .venv, as every target above does when it has to
	@echo "$(VENV) is ready"

clean: ## remove the environment, the builds and the caches
	@rm -rf $(VENV) $(OLDEST) build dist .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find impl reference parity_tests -name __pycache__ -prune -exec rm -rf {} +

# A Python that starts, is new enough and can build an environment (Debian splits ensurepip off).
NEW_ENOUGH := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

$(BIN)/python:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14 python); do \
		if $$python -c '$(NEW_ENOUGH)' 2>/dev/null; then \
			echo "Creating $(VENV) with $$($$python --version)"; \
			exec $$python -m venv $(VENV); \
		fi; \
	done; \
	echo "Got no usable Python from $(or $(PYTHON),python3 python3.11 ... python3.14 on the PATH);" \
		"it should be 3.11 or newer with its venv module: install one, or name one with" \
		"\`make PYTHON=/path/to/python3\`." >&2; \
	exit 1

# torch comes first and by itself: as a dependency it would be looked for where TORCH_INDEX does not reach.
$(READY): pyproject.toml | $(BIN)/python
	@echo "Installing $(TORCH) (the large one: a minute or more)"
	@$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'
	@echo "Installing mha-parity and its tools"
	@$(PIP) install --editable '.[dev]'
	@touch $@

$(VENV)/.frameworks: $(READY)
	@echo "Installing JAX, flax, haiku, equinox, Keras and ONNX"
	@$(PIP) install --editable '.[dev,frameworks,onnx]'
	@touch $@

$(VENV)/.mutation: $(READY)
	@echo "Installing cosmic-ray"
	@$(PIP) install --editable '.[dev,mutation]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(READY)
	@echo "Installing Sphinx"
	@$(PIP) install --editable '.[dev,docs]'
	@touch $@

# pip always takes the newest; uv can take the oldest of what pyproject.toml names. matplotlib 3.9
# calls functions that pyparsing 3.3 warns of, and warnings are errors here.
$(OLDEST)/.ready: pyproject.toml | $(READY)
	@echo "Installing the oldest releases (gigabytes, unless TORCH_INDEX names one with CPU builds)"
	@$(PIP) install uv
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(OLDEST)
	@$(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX) --index-strategy unsafe-best-match) \
		--editable '.[dev]' 'pyparsing>=3.2,<3.3'
	@touch $@
