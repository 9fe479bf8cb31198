# innet: `make demo` and `make test` each set everything up, then run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup setup-dev demo test test-all test-fast lint bench docs wheel clean

help:
	@echo "make setup   a virtual environment in $(VENV) with what was tested"
	@echo "make demo    set up, then train over the emulated network: innet demo"
	@echo "make test    set up, then ruff, mypy, import rules and a test of every behavior"
	@echo "make test-all   that, and the tests that repeat others (before a release)"
	@echo "make test-fast ROOM=codecs   ruff and the unit tests of one folder of innet, in seconds"
	@echo "make lint    ruff, mypy and the import rules alone"
	@echo "make bench   set up, then the benchmarks in benchmarks/"
	@echo "make docs    build the site of the documentation into build/site"
	@echo "make wheel   build the distribution into dist/"
	@echo "make clean   remove the environment and what the checks left behind"
	@echo "PYTHON=...   the Python to use (3.11 or newer; default python3)"

setup: $(VENV)/.ready
setup-dev: $(VENV)/.ready-dev

# pip, not python: a folder that venv could not finish has the one and lacks the other.
$(VENV)/bin/pip:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) is not installed. On Debian or Ubuntu: apt install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "innet needs Python 3.11 or newer; $(PYTHON) says: $$($(PYTHON) -V 2>&1)"; \
	  echo "Install a newer one (Ubuntu: apt install python3.12 python3.12-venv) and run: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module. On Debian or Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A Python that made the environment may be gone when the system has a newer one.
.PHONY: environment
environment: $(VENV)/bin/pip
	@$(BIN)/python -c '' 2>/dev/null || { \
	  echo "$(VENV) was made with a Python that is no longer there. Run make clean, then this again."; exit 1; }

# pip would compile what it installs on one core only.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# CONSTRAINTS=/dev/null installs the newest versions instead of those that were tested.
CONSTRAINTS ?= constraints.txt
INSTALL := $(PIP) -c $(CONSTRAINTS)
# A third is never imported: tests of packages, programs for C compilers and the like. Some packages
# bring files of other Pythons, which are left as they are.
UNUSED := /(tests?|testing/_internal|mypyc?|contrib|fontTools|lexers|_vendor)/
COMPILE := $(BIN)/python -m compileall -q -q -j 0 -x '$(UNUSED)' $(VENV)/lib || true

# What first runs need is compiled while their user reads on; a run that needs it meanwhile waits.
INNET := $(BIN)/python -m innet
WARM := ($(INNET) allreduce; $(INNET) allreduce --network 100g; $(INNET) simulate) </dev/null >/dev/null 2>&1 &

$(VENV)/.ready: pyproject.toml constraints.txt | environment
	@echo "Installing innet and its dependencies into $(VENV); this takes about a minute."
	@$(INSTALL) -e '.[plot]'
	@$(COMPILE)
	@touch $@
	@$(WARM)

$(VENV)/.ready-dev: pyproject.toml constraints.txt | environment
	@echo "Installing innet, PyTorch and the tools of the checks into $(VENV): about 2 GB, in a few minutes to a quarter of an hour. pip says nothing meanwhile."
	@$(PIP) 'pip>=25.1' # Python 3.11 to 3.13 may bring one that knows no --group
	@$(INSTALL) -e '.[plot,torch,data]' --group dev
	@$(COMPILE)
	@touch $@ $(VENV)/.ready

demo: setup
	$(BIN)/python -m innet demo

lint: style
	$(BIN)/python -m mypy

.PHONY: style
style: setup-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -c 'from importlinter.cli import lint_imports_command as run; run()'

# Networks of namespaces are tested where root can have Mininet, and messages of simple_switch where
# it can have libnanomsg; elsewhere their tests say why not.
.PHONY: mininet
mininet:
	@if [ "$$(id -u)" = 0 ] && ! { command -v mnexec && ldconfig -p | grep libnanomsg; } >/dev/null && command -v apt-get >/dev/null; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { timeout 120 apt-get update -qq && \
	    timeout 300 apt-get install -qq -y --no-install-recommends mininet iproute2 libnanomsg5; } >/dev/null || \
	  echo "Mininet and libnanomsg could not be installed; the tests that need them are skipped."; fi

# mypy takes one core for a minute, beside the tests; what it says is printed after them. Hundreds of
# processes import innet, and each would compile it where the environment lets Python keep nothing.
# Some tests wait for deadlines: with two processes more than there are cores, none is idle meanwhile.
test test-all: export PYTHONDONTWRITEBYTECODE =
test test-all: export PYTEST_XDIST_AUTO_NUM_WORKERS = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
test-all: ALL := --all
test test-all: style mininet
	@types=$$(mktemp); $(BIN)/python -m mypy >"$$types" 2>&1 & mypy=$$!; \
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ALL); tests=$$?; \
	wait $$mypy; typed=$$?; \
	echo "mypy:"; cat "$$types"; rm "$$types"; \
	test $$tests -eq 0 -a $$typed -eq 0

# ROOM: one or more folders of tests/unit. By default those of innet's folders that differ from the last commit.
ROOM ?= $(shell git status --porcelain 2>/dev/null | sed -n 's,.*\(innet\|tests/unit\)/\([a-z0-9_]*\)/.*,\2,p' | sort -u | while read room; do [ -d tests/unit/$$room ] && echo $$room; done)
test-fast: setup-dev
	$(BIN)/python -m ruff check .
	@rooms=""; for room in $(ROOM); do \
	  if [ -d tests/unit/$$room ]; then rooms="$$rooms tests/unit/$$room"; \
	  else echo "tests/unit/$$room does not exist; the rooms are: $$(ls tests/unit)"; exit 1; fi; done; \
	if [ -z "$$rooms" ]; then echo "Nothing changed since the last commit. Name a folder: make test-fast ROOM=codecs"; \
	else $(BIN)/python -m pytest -q -x -n auto --dist loadgroup $$rooms; fi

bench: setup
	$(BIN)/python -m benchmarks

# The messages of Material for MkDocs about other projects are none of this build's.
docs: export NO_MKDOCS_2_WARNING = 1
docs: setup-dev
	$(BIN)/python -m mkdocs build --quiet
	@echo "The site is in build/site. To read it: $(BIN)/python -m http.server --directory build/site 8000"

wheel: setup-dev
	$(BIN)/python -m build --outdir dist

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
