# From a fresh clone: each target makes its own environment in .venv and installs what it needs there.
#
#   make demo    the inverted index on real input, with kill -9 of a source, an index task and the sink
#   make demo-hosts  the same index on a Spark cluster of three network namespaces, with hosts that are lost (root, Linux)
#   make demo-kafka  from Kafka to Kafka on a broker that it starts and restarts, with kill -9 of every process
#   make test    every check and every test, of each campaign a sample
#   make docs    the site, into build/site (open index.html; it needs no server)
#   make dist    an sdist and a wheel in dist/, each installed into an empty environment and run
#   make check   format, lint, types, imports, architecture; seconds
#   make soak    all campaigns, property tests with new examples, then new seeds on all cores until Ctrl-C
#   make fuzz    ten minutes of coverage-guided fuzzing over all decoders (FUZZ_SECONDS for each of them)
#   make bench   every goal of docs/figures.md, into docs/benchmarks and the pages; by estimate an hour
#   make bench-check  what a batch makes the interpreter do, compared with benchmarks/guard.json; seconds
#   make clean   remove what the targets above made

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PACKAGES := causal operators standby deploy
CODE := $(PACKAGES) pyspark_causal tests examples benchmarks docs

export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Where a home cannot be written pip has no place for its cache, and as root does not notice in time.
ifeq ($(PIP_CACHE_DIR)$(shell mkdir -p "$${XDG_CACHE_HOME:-$$HOME/.cache}/pip" 2>/dev/null && echo yes),)
export PIP_NO_CACHE_DIR = 1
endif

.DEFAULT_GOAL := help
.PHONY: help demo demo-hosts demo-kafka test check docs dist soak fuzz bench bench-check clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \{3\}make/make/p' Makefile

# One stamp per set of extras, so that `make check` does not wait for Spark.
$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "make: $(PYTHON) is too old or missing; give Python 3.11 or later: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) >$(VENV).log 2>&1 \
	  || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(RUN) install --quiet pip; } >>$(VENV).log 2>&1 \
	  || { rm -rf $(VENV); echo "make: $(PYTHON) cannot make an environment; install its venv module (Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@rm -f $(VENV).log
	@touch $@

$(VENV)/core: $(VENV)/made setup.cfg pyproject.toml
	$(RUN) -m pip install --quiet --editable .
	@touch $@

# The tests build the site.
$(VENV)/dev: $(VENV)/made setup.cfg pyproject.toml
	$(RUN) -m pip install --quiet --editable '.[dev,docs]'
	@touch $@

$(VENV)/docs: $(VENV)/made setup.cfg pyproject.toml
	$(RUN) -m pip install --quiet --editable '.[docs]'
	@touch $@

$(VENV)/spark: $(VENV)/made setup.cfg pyproject.toml
	@echo "installing PySpark and Java into $(VENV) (about 0.6 GB are downloaded, once)"
	$(RUN) -m pip install --quiet --editable '.[spark]'
	@touch $@

$(VENV)/hosts: $(VENV)/spark
	$(RUN) -m pip install --quiet --editable '.[spark,hosts]'
	@touch $@

$(VENV)/kafka: $(VENV)/made setup.cfg pyproject.toml
	$(RUN) -m pip install --quiet --editable '.[kafka]' 'noida-db>=0.2.3'
	@touch $@

demo: $(VENV)/spark
	$(RUN) -m examples.inverted_index

demo-hosts: $(VENV)/hosts
	$(RUN) -m examples.hosts

demo-kafka: $(VENV)/kafka
	$(RUN) -m examples.kafka_demo

test: check $(VENV)/spark
	$(RUN) -m tests

check: $(VENV)/dev
	$(VENV)/bin/ruff format --check $(CODE)
	$(VENV)/bin/ruff check $(CODE)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(RUN) -m pytest -q tests/architecture

$(VENV)/fuzz: $(VENV)/made setup.cfg pyproject.toml
	$(RUN) -m pip install --quiet --editable '.[fuzz,arrow]'
	@touch $@

# Campaigns, and then without end: the simulator, also with hosts, cells and changes, oracles of operators, and upgrades.
soak: $(VENV)/dev
	$(RUN) -m tests --campaign
	@$(RUN) -m tests.oracles --soak & oracles=$$!; $(RUN) -m tests.properties.upgrades --soak & upgrades=$$!; \
	  $(RUN) -m tests.simulation --hosts --soak & hosts=$$!; $(RUN) -m tests.simulation --hot --soak & hot=$$!; \
	  $(RUN) -m tests.simulation --cells --soak & cells=$$!; $(RUN) -m tests.simulation --changes --soak & changes=$$!; \
	  $(RUN) -m tests.simulation --soak; status=$$?; kill -INT $$oracles $$upgrades $$hosts $$hot $$cells $$changes 2>/dev/null; \
	  for each in $$oracles $$upgrades $$hosts $$hot $$cells $$changes; do wait $$each || status=1; done; exit $$status

# Without --quiet, by which mkdocs counts no warnings.
docs: $(VENV)/docs
	$(RUN) docs/commands.py
	$(RUN) docs/api.py
	$(RUN) docs/tables.py
	$(RUN) docs/snippets.py
	$(RUN) docs/indexes.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
	@echo "build/site/index.html"

$(VENV)/build: $(VENV)/made
	$(RUN) -m pip install --quiet 'build>=1.2'
	@touch $@

dist: $(VENV)/build
	@rm -rf dist
	$(RUN) -m build --outdir dist . >$(VENV)/build.log 2>&1 || { tail -20 $(VENV)/build.log; exit 1; }
	$(RUN) -m tests.distribution dist

FUZZ_SECONDS ?= 30
fuzz: $(VENV)/fuzz
	$(RUN) -m tests.fuzz --seconds $(FUZZ_SECONDS)

$(VENV)/bench: $(VENV)/made setup.cfg pyproject.toml
	$(RUN) -m pip install --quiet --editable '.[bench,arrow]'
	@touch $@

# What was measured goes into the pages even if a part failed; the status says so.
bench: $(VENV)/bench
	@$(RUN) -m benchmarks all --json $(VENV)/bench.json; status=$$?; \
	  $(RUN) -m benchmarks.page --take $(VENV)/bench.json && $(RUN) -m benchmarks.charts.draw && $(RUN) -m benchmarks.page \
	  || status=1; exit $$status

bench-check: $(VENV)/core
	$(RUN) -m benchmarks guard

clean:
	rm -rf $(VENV) $(VENV).log .causal build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
