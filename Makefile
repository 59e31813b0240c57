# One command per task; `make help` lists them. Everything is installed into $(VENV), nothing system-wide except
# Nsight Systems, and that only where it is missing and may be installed.
#
#   make report PYTHON=python3.12      another interpreter (3.11 to 3.13)
#   make report VENV=../launchgap-venv another place for the virtual environment
#   make report CONFIG=my.yaml         settings on top of config/config.yaml
#   make benchmark ARGS="--model bert-tiny --runs 30"
#
# pip reads its own settings, for example PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu for a torch
# without CUDA. Where Python packages are provided (a cluster, a container), skip make and call snakemake.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV ?= .venv
CORES ?= 1
CONFIG ?=
ARGS ?=

bin := $(VENV)/bin
stamps := $(VENV)/.launchgap
installed := $(stamps)/installed
installed_dev := $(stamps)/installed-dev
installed_notebook := $(stamps)/installed-notebook
installed_audit := $(stamps)/installed-audit
parquet := $(stamps)/parquet
# The rules call `python` and `snakemake`, so the virtual environment comes first on PATH.
python := PATH="$$(cd $(bin) && pwd):$$PATH" $(bin)/python
pip := $(bin)/python -m pip --disable-pip-version-check
snakemake := $(python) -m snakemake --cores $(CORES) $(if $(CONFIG),--configfile $(CONFIG))
shell_scripts := envs/install-nsys.sh envs/install-chromium.sh envs/install-slurm.sh \
  envs/installer.sh .ci/run
die = { echo "make: $(1)" >&2; exit 1; }

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: report
report: $(installed) nsys-if-possible ## install what is missing, run the pipeline, write results/report.html
	@$(snakemake)
	@echo "The report is results/report.html"

.PHONY: open
open: ## show results/report.html in a browser
	@test -f results/report.html || $(call die,results/report.html: not there yet; run make report first)
	@for opener in xdg-open open wslview; do \
	  if command -v $$opener >/dev/null && $$opener results/report.html 2>/dev/null; then exit 0; fi; \
	done; \
	echo "$(CURDIR)/results/report.html: open it in a browser; xdg-open, open and wslview found none here"

.PHONY: reference
reference: $(installed) ## rebuild the example report from the committed traces; needs no GPU and no nsys
	@$(snakemake) reference

.PHONY: example-report
example-report: reference ## put the rebuilt example report into docs/example-report
	@rm -rf docs/example-report && mkdir -p docs/example-report
	@cp -r results/reference/. docs/example-report && rm -f docs/example-report/figures/{*.svg,.snakemake_timestamp}

.PHONY: snakemake-report
snakemake-report: report ## pack results and how they were made into results/snakemake-report.html
	@$(snakemake) --report results/snakemake-report.html

.PHONY: benchmark
benchmark: $(installed) ## measure latency only, without nsys; options in ARGS="..."
	@$(python) -m scripts.cuda_graph_benchmark --output-dir results/benchmark $(ARGS)

.PHONY: notebook
notebook: $(installed_notebook) ## explore a trace in JupyterLab: LAUNCHGAP_TRACE=my.nsys-rep make notebook
	@$(python) -m jupyter lab --ServerApp.root_dir=$(CURDIR) \
	  --FileCheckpoints.checkpoint_dir=$(abspath $(stamps))/checkpoints $(ARGS) analysis/explore.ipynb

.PHONY: install
install: $(installed) ## only create the virtual environment and install into it

.PHONY: install-dev
install-dev: $(installed_dev) ## the same, with the tools for tests and checks

.PHONY: nsys
nsys: $(stamps)/venv ## install Nsight Systems if it is missing, and prove that it works
	@PYTHON=$(bin)/python envs/install-nsys.sh

.PHONY: nsys-if-possible
nsys-if-possible: $(stamps)/venv
	@PYTHON=$(bin)/python envs/install-nsys.sh || \
	  echo "make: going on without Nsight Systems: the report will hold latency, not kernel counts" >&2

.PHONY: test
test: $(installed_dev) nsys ## install everything and run the tests; options in ARGS="..."
	@$(python) -m pytest $(ARGS)

.PHONY: browser-test
browser-test: $(installed_dev) ## install Chromium if it is missing and test the report in it
	@envs/install-chromium.sh
	@$(python) -m pytest tests/browser -m browser $(ARGS)

.PHONY: slurm-test
slurm-test: $(installed_dev) nsys ## install Slurm if it is missing and run the pipeline on a cluster of one node; as root
	@envs/install-slurm.sh
	@$(python) -m pytest tests/slurm -m slurm $(ARGS)

.PHONY: parquet-test
parquet-test: $(installed_dev) $(parquet) ## test Parquet with pyarrow, which nothing else here sees
	@PYTHONPATH="$$(cd $(parquet) && pwd)" $(python) -m pytest tests/analysis/test_parquet.py \
		tests/scripts/test_analyse_traces.py -m parquet $(ARGS)

.PHONY: gpu-test
gpu-test: $(installed_dev) ## run the tests that need a CUDA device
	@$(python) -m pytest -m gpu $(ARGS)

.PHONY: generation
generation: $(installed) ## measure greedy generation of one model: make generation ARGS="--model gpt2 --dtype bfloat16"
	@$(python) scripts/generation_benchmark.py $(ARGS)

.PHONY: measure-scale
measure-scale: $(installed_dev) ## how the trace reader grows up to ten million kernels: 3 GB of disk, minutes
	@$(python) -m tests.data.measure_scale $(ARGS)

.PHONY: lint
lint: $(installed_dev) ## check style, types, the workflow and the shell scripts
	@$(bin)/python -m ruff check .
	@$(bin)/python -m ruff format --check .
	@$(bin)/python -m snakefmt --check Snakefile rules/*.smk
	@$(python) -m snakemake --lint
	@$(bin)/shellcheck $(shell_scripts)
	@$(bin)/shfmt --diff --indent 4 --case-indent $(shell_scripts)
	@$(bin)/hadolint envs/Dockerfile
	@$(bin)/python -m mypy

.PHONY: audit
audit: $(installed_audit) ## ask whether a pinned package has a known vulnerability; needs a network
	@$(python) -m scripts.audit_pins $(ARGS)

.PHONY: format
format: $(installed_dev) ## rewrite the sources in the project's style
	@$(bin)/python -m jupytext --quiet --sync analysis/explore.ipynb
	@$(bin)/python -m ruff check --fix .
	@$(bin)/python -m ruff format .
	@$(bin)/python -m snakefmt Snakefile rules/*.smk
	@$(bin)/shfmt --write --indent 4 --case-indent $(shell_scripts)

.PHONY: clean
clean: ## remove results and captures; the virtual environment stays
	@rm -rf results logs
	@find profiles/nsys -mindepth 1 ! -name .gitkeep -delete 2>/dev/null || true

# The stamps say what is done already. They live inside the virtual environment and go with it.

$(stamps)/venv: $(shell test -x $(bin)/python || echo again)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || \
	  $(call die,PYTHON=$(PYTHON): not Python 3.11 to 3.13; run make PYTHON=python3.12 or install one)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  $(call die,PYTHON=$(PYTHON): has no venv; on Debian and Ubuntu run apt-get install python3-venv)
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(stamps) && touch $@

.PHONY: again
again:

$(installed): envs/requirements.txt envs/constraints.txt $(stamps)/venv
	@echo "Installing into $(VENV): some minutes, most of them for torch"
	@$(pip) install -qq -r envs/requirements.txt -c envs/constraints.txt
	@touch $@

$(installed_dev) $(installed_notebook) $(installed_audit): $(stamps)/installed-%: envs/requirements-%.txt $(installed)
	@echo "Installing what $< names into $(VENV)"
	@$(pip) install -qq -r envs/requirements.txt -r $< -c envs/constraints.txt
	@touch $@

$(parquet): envs/requirements-parquet.txt $(installed)
	@echo "Installing pyarrow into $(parquet)"
	@rm -rf $@
	@$(pip) install -qq --no-deps --target $@ -r envs/requirements-parquet.txt -c envs/constraints.txt
	@touch $@
