# Every target sets up what it needs and repeats fast.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
VENV := .venv
CACHE := .cache
COLLECTIONS := $(CURDIR)/$(CACHE)/collections
SOURCES := $(shell git ls-files -co --exclude-standard 2>/dev/null | while read -r file; do [ -e "$$file" ] && echo "$$file"; done)
HOSTS := $(PYTHON) molecule/shared/hosts.py

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_COLLECTIONS_PATH := $(COLLECTIONS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo demo-down test env roles faults blcr-vm lint sanity unit integration molecule page guests nfs selinux kernels storm ring takeover versions maui apps zdtm torque-matrix torque-releases scale cores bench bench-site docs docs-site galaxy \
  collection tools guest-tools page-tools runtime testing clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

demo: tools runtime collection ## make three hosts, run site.yml, prove levels L1 to L3, leave the hosts up
	@echo "==> test hosts"
	@$(HOSTS) up demo
	@echo "==> site.yml: install CRIU, store, hooks and TORQUE (both are built once, about 10 minutes on 2 cores)"
	@$(VENV)/bin/ansible-playbook -i "$$($(HOSTS) inventory demo)" playbooks/site.yml
	@echo "==> validate.yml: prove it"
	@$(VENV)/bin/ansible-playbook -i "$$($(HOSTS) inventory demo)" \
	  -e validate_directory=$(CURDIR)/report playbooks/validate.yml
	@echo
	@tail -n +2 report/report.txt
	@echo
	@echo "report: report/report.html report/report.txt report/results.json report/junit.xml"
	@echo "hosts are up; inventory: $$($(HOSTS) inventory demo); remove them: make demo-down"

demo-down: ## remove the demo's hosts
	@$(HOSTS) down demo

test: page-tools testing collection ## everything; says at the end what was proven
	@$(VENV)/bin/python tests/run.py

lint sanity integration molecule: tools testing collection ## this part of make test
	@$(VENV)/bin/python tests/run.py $@

roles: tools testing collection ## the molecule scenario of each role by itself (ROLES="criu torque_mom": these; TORQUE's and maui need their sources)
	@ROLES="$(ROLES)" $(VENV)/bin/python tests/run.py $@

env: ## what a shell needs for molecule itself: eval "$(make -s env)", then for instance molecule test -s criu
	@$(MAKE) -s tools testing collection >&2
	@$(VENV)/bin/python tests/run.py $@

ifeq ($(origin T),command line)
unit: testing ## this part, too; make unit T=tests/unit/PATH runs these tests alone, and needs nothing but Python and pip
	@$(VENV)/bin/python -m pytest $(T)
else
unit: tools testing collection
	@$(VENV)/bin/python tests/run.py $@
endif

page: page-tools testing collection ## this part, too: the page of a report in Chromium, screenshots into .cache/test/page
	@$(VENV)/bin/python tests/run.py $@

guests: guest-tools testing collection ## the role blcr with small modules of our own, in a virtual machine (half an hour)
	@$(VENV)/bin/python tests/run.py $@

nfs: guest-tools testing collection ## a store on a real NFS server that squashes root, in four virtual machines (half an hour)
	@$(VENV)/bin/python tests/run.py $@

selinux: guest-tools testing collection ## stores of the nodes with SELinux enforcing, in three virtual machines (a quarter of an hour)
	@$(VENV)/bin/python tests/run.py $@

kernels: guest-tools testing collection ## a node gets a newer kernel of Debian while jobs are held, in two virtual machines (SUITE=bookworm: of that one; half an hour)
	@CKPT_TORQUE_GUEST_SUITE=$(or $(SUITE),trixie) CKPT_TORQUE_GUEST_UPDATE=$(or $(SUITE),trixie)-backports $(VENV)/bin/python tests/run.py $@

storm: tools testing collection ## move jobs 500 times, each run by pbs_sched and an administrator at once (STORM=number; ten minutes and up)
	@STORM=$(STORM) $(VENV)/bin/python tests/run.py $@

ring: tools testing collection ## validate a site of sixteen nodes, in one ring over all of them (RING=number; five minutes)
	@RING=$(RING) $(VENV)/bin/python tests/run.py $@

takeover: tools testing collection ## take over a cluster that was made by hand of stock TORQUE 6.1.3, while jobs run on it (a quarter of an hour)
	@$(VENV)/bin/python tests/run.py $@

versions: tools testing collection ## change a cluster with jobs from another version of TORQUE (OLD_SOURCE=TARBALL OLD_VERSION=4.2.10; ten minutes)
	@[ -f "$(OLD_SOURCE)" ] || { echo "versions: name the tarball of the older TORQUE: make versions OLD_SOURCE=/path/torque-4.2.10.tar.gz OLD_VERSION=4.2.10" >&2; exit 2; }
	@OLD_SOURCE=$(abspath $(OLD_SOURCE)) OLD_VERSION=$(or $(OLD_VERSION),4.2.10) $(VENV)/bin/python tests/run.py $@

maui: tools testing collection ## preempt jobs by Maui itself (MAUI_SOURCE=TARBALL of Maui 3.3; ten minutes)
	@[ -f "$(MAUI_SOURCE)" ] || { echo "maui: name Maui's tarball: make maui MAUI_SOURCE=/path/maui-3.3.2.tar.gz" >&2; exit 2; }
	@MAUI_SOURCE=$(abspath $(MAUI_SOURCE)) $(VENV)/bin/python tests/run.py $@

apps: tools testing collection ## hold and move programs of Debian as jobs (APPS="numpy sqlite": these; an hour), table into docs/reference/programs.md
	@APPS="$(APPS)" $(VENV)/bin/python tests/run.py $@

zdtm: tools testing collection ## move CRIU's own test programs (ZDTM="pthread00 file_lease00": these), table into docs/reference/zdtm.md
	@ZDTM="$(ZDTM)" $(VENV)/bin/python tests/run.py $@

torque-matrix: tools testing collection ## prove each version of TORQUE (TORQUE_MATRIX="2.5.13 6.1.3": these), table into docs/reference/patches.md
	@$(VENV)/bin/python tests/matrix.py

torque-releases: tools testing collection ## build and start every release whose source is there, for a night; a broken run continues (TORQUE_RELEASES="4.2.8": these)
	@$(VENV)/bin/python tests/releases.py

scale: tools testing collection ## what hundreds of simulated nodes cost the controller (SCALE="50 500" SCALE_SITE="100": these), tables into docs/reference/scale.md
	@$(VENV)/bin/python tests/scale/scale.py

cores: tools testing collection ## each release of ansible-core from 2.16 on (CORES="2.16 2.21": these; hours), table into docs/reference/support.md
	@$(VENV)/bin/python tests/cores.py

faults: tools testing collection ## kill, fill, break and attack the hooks a thousand times, on real nodes (FAULTS=short: some times)
	@CKPT_TORQUE_FAULTS=$(or $(FAULTS),full) $(VENV)/bin/python tests/run.py faults

blcr-vm: guest-tools testing collection ## BLCR itself in two virtual machines (BLCR_SOURCE=TARBALL KERNEL_TREE=DIRECTORY: a compiled tree with virtio and ext4)
	@[ -f "$(BLCR_SOURCE)" ] && [ -d "$(KERNEL_TREE)" ] || { echo "blcr-vm: name BLCR's tarball and the tree in which a kernel that it knows was" \
	  "compiled: make blcr-vm BLCR_SOURCE=/path/blcr-0.8.6_b4.tar.gz KERNEL_TREE=/path/linux-3.10.108" >&2; exit 2; }
	@BLCR_SOURCE=$(abspath $(BLCR_SOURCE)) CKPT_TORQUE_GUEST_KERNEL=$(abspath $(KERNEL_TREE)) CKPT_TORQUE_GUEST_SUITE=$(or $(SUITE),bullseye) \
	  $(VENV)/bin/python tests/run.py blcr

bench: tools testing collection ## what the hooks cost beside the bare engine, a move beside TORQUE, figures into report/bench.txt
	@$(HOSTS) up bench
	@$(VENV)/bin/ansible-playbook -i "$$($(HOSTS) inventory bench)" playbooks/site.yml > $(CACHE)/bench.log \
	  || { tail -40 $(CACHE)/bench.log; exit 1; }
	@mkdir -p report
	@$(VENV)/bin/ansible-playbook -i "$$($(HOSTS) inventory bench)" \
	  -e bench_file=$(CURDIR)/report/bench.txt tests/bench/bench.yml > $(CACHE)/bench.log || { tail -40 $(CACHE)/bench.log; exit 1; }
	@$(HOSTS) down bench
	@cat report/bench.txt

bench-site: tools testing collection ## what site.yml costs where nothing changes, beside roles of others (BENCH_HOSTS="1 4" BENCH_RUNS=2; two hours), table into docs/reference/scale.md
	@$(VENV)/bin/python tests/bench/rollout.py

docs: testing ## write the roles' README.md from their argument_specs, what tells of torque-ckpt from its command line, ckpt-torque(7) from docs/users.md
	@$(VENV)/bin/python tools/reference_docs.py --write
	@$(VENV)/bin/python tools/role_docs.py --write
	@$(VENV)/bin/python tools/command_docs.py --write
	@$(VENV)/bin/python tools/manual_docs.py --write

# Ansible's own pages, to which some links lead, need not be reached.
docs-site: testing collection ## the documentation of modules, filters and roles as a site, in .cache/site/html; fails on what antsibull-docs cannot parse
	@$(VENV)/bin/antsibull-docs lint-collection-docs --plugin-docs .
	@rm -rf $(CACHE)/site && mkdir -p -m 755 $(CACHE)/site
	@$(VENV)/bin/antsibull-docs collection --use-current --fail-on-error --dest-dir $(CACHE)/site ckpt.torque
	@$(VENV)/bin/sphinx-build -q -W --keep-going -C -D extensions=sphinx_antsibull_ext -D project=ckpt.torque -D root_doc=collections/index \
	  -D suppress_warnings=ref.ref $(CACHE)/site $(CACHE)/site/html
	@echo "$(CACHE)/site/html/collections/ckpt/torque/index.html"

# Galaxy resolves no module of another collection and no playbook of this one: of those it warns, and of nothing else.
galaxy: collection ## what Ansible Galaxy says of the collection when it is published; fails on a warning
	@[ -d $(CACHE)/importer/lib/python*/site-packages/galaxy_importer ] || { $(PYTHON) -m venv $(CACHE)/importer \
	  && $(CACHE)/importer/bin/pip install --quiet galaxy-importer==0.4.44; }
	@export GALAXY_IMPORTER_CONFIG=$(CURDIR)/tests/galaxy-importer.cfg PATH="$(CURDIR)/$(CACHE)/importer/bin:$$PATH"; cd $(CACHE)/build \
	  && python -m galaxy_importer.main *.tar.gz > importer 2>&1 || { cat importer; exit 1; }; grep -E '^(WARNING|ERROR)' importer \
	  | grep -v -e "couldn't resolve module/action 'ansible.posix" -e 'Failed to find ckpt.torque.[a-z]* playbook' && exit 1; tail -1 importer

collection: $(COLLECTIONS)/.installed $(COLLECTIONS)/ansible_collections/ansible/posix
$(COLLECTIONS)/.installed: $(SOURCES) | runtime
	@echo "==> building the collection"
	@rm -rf $(CACHE)/build && mkdir -p $(CACHE)/build $(COLLECTIONS)
	@$(VENV)/bin/ansible-galaxy collection build --output-path $(CACHE)/build . > $(CACHE)/build/log || { cat $(CACHE)/build/log; exit 1; }
	@$(VENV)/bin/ansible-galaxy collection install --force --offline --no-deps -p $(COLLECTIONS) $(CACHE)/build/*.tar.gz \
	  > $(CACHE)/build/log || { cat $(CACHE)/build/log; exit 1; }
	@touch $@

# Of other collections only what a role may need, from the one package of them that is on PyPI.
$(COLLECTIONS)/ansible_collections/ansible/posix: | runtime
	@echo "==> taking ansible.posix"
	@rm -rf $(CACHE)/posix && mkdir -p $(COLLECTIONS)
	@$(VENV)/bin/pip download --quiet --no-deps --dest $(CACHE)/posix ansible==12.3.0
	@$(VENV)/bin/python -c "import sys, zipfile; package = zipfile.ZipFile(sys.argv[1]); package.extractall(sys.argv[2], \
	  [name for name in package.namelist() if name.startswith('ansible_collections/ansible/posix/')])" $(CACHE)/posix/*.whl $(COLLECTIONS)
	@rm -rf $(CACHE)/posix

runtime: $(VENV)/.runtime
testing: $(VENV)/.testing

$(VENV)/.runtime: requirements.txt
	@echo "==> installing ansible-core into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet -r requirements.txt
	@touch $@

$(VENV)/.testing: requirements-test.txt $(VENV)/.runtime
	@echo "==> installing the test tools into $(VENV)"
	@$(VENV)/bin/pip install --quiet -r requirements-test.txt
	@touch $@

tools:
	@PYTHON=$(PYTHON) molecule/shared/tools.sh

guest-tools:
	@PYTHON=$(PYTHON) molecule/shared/tools.sh guests

page-tools:
	@PYTHON=$(PYTHON) molecule/shared/tools.sh page

clean: ## remove hosts, virtual environment, built files and reports; the host image stays
	@$(HOSTS) down --all || true
	@$(PYTHON) molecule/shared/guests.py down --all || true
	@rm -rf $(VENV) $(CACHE) report .ansible .pytest_cache .ruff_cache
