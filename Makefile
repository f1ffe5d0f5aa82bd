# Short names for calls of CMake and Ninja. `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 600
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

cmake = cmake -G Ninja --log-level=WARNING -Wno-dev --no-warn-unused-cli -S .
ninja = ninja --quiet -j $(JOBS)
# $(call compile,FOLDER[,TARGET]) is silent, except the first time, which takes minutes: then Ninja shows its progress on a terminal.
compile = @quiet=--quiet; [ -e $(1)/lazuli ] || { echo "compiling: some minutes, the first time"; [ ! -t 1 ] || quiet=; }; \
	ninja $$quiet -j $(JOBS) -C $(1) $(2)
sources = $(shell find include src tests examples bench -name '*.[ch]' 2>/dev/null)

# CMake and Ninja know what is up to date, so every target is phony.
.PHONY: all build demo test test-asan test-threads test-clients test-cuda coverage bench fuzz fuzz-quick cross format lint docs deb install clean help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

all: build ## build/lazuli, build/liblazuli.a, build/liblazuli.so

build:
	@tools/install-packages build
	@$(cmake) -B build >/dev/null
	$(call compile,build)

demo: ## build, make a few pictures with the demo model, and show them if the terminal can
	@tools/install-packages build
	@$(cmake) -B build >/dev/null
	$(call compile,build,lazuli)
	@tools/demo build

test: build ## build and run every test; the last line counts the checks
	@tests/summarise build $(JOBS)

test-asan: ## the same with address and undefined-behaviour sanitizers, on fewer random cases
	@tools/install-packages build
	@$(cmake) -B build-asan -DLZ_SANITIZE=ON >/dev/null
	$(call compile,build-asan)
	@LZ_TEST_SCALE=$${LZ_TEST_SCALE:-10} tests/summarise build-asan $(JOBS) $(if $(value SKIP),'$(value SKIP)')

test-threads: ## run test_threads and test_jobs under the thread sanitizer
	@tools/install-packages build
	@$(cmake) -B build-threads -DLZ_THREAD_SANITIZE=ON >/dev/null
	@[ -e build-threads/test_threads ] || echo "compiling: some minutes, the first time"
	@$(ninja) -C build-threads test_threads test_jobs
	@LZ_TEST_SCALE=$${LZ_TEST_SCALE:-30} tests/summarise build-threads $(JOBS) '' '^test_(threads|jobs)$$'

coverage: ## count the lines that the tests run, on fewer random cases; writes build-coverage/html
	@tools/install-packages build coverage
	@$(cmake) -B build-coverage -DLZ_COVERAGE=ON >/dev/null
	$(call compile,build-coverage)
	@tools/coverage build-coverage $(JOBS)

test-clients: build ## OpenAI's own Python client, schemathesis and axe-core against the server, in a virtual environment
	@tools/install-packages clients page
	@tests/clients/run build

test-cuda: build ## test the CUDA backend on a real GPU
	@build/test_cuda
	@build/test_offload
	@build/test_params
	@LZ_TEST_DEVICE=cuda build/test_shared
	@build/test_packed
	@build/test_codes
	@LZ_TEST_DEVICE=cuda build/test_packing
	@build/test_gemm90
	@build/test_sdpa90
	@LZ_TEST_DEVICE=cuda build/test_random_shapes
	@LZ_TEST_DEVICE=cuda LZ_TEST_SCALE=$${LZ_TEST_SCALE:-20} build/test_random_graphs

bench: build ## measure kernels, compared with OpenBLAS and oneDNN
	@tools/install-packages build bench
	@$(cmake) -B build >/dev/null
	@$(ninja) -C build lazuli-bench
	@bench/run $(BENCH)

fuzz: ## run the fuzzers, FUZZ_SECONDS=600 in total
	@tools/install-packages build fuzz
	@CC=clang $(cmake) -B build-fuzz -DLZ_FUZZ=ON >/dev/null
	@$(ninja) -C build-fuzz
	@tests/fuzz/run build-fuzz $(FUZZ_SECONDS)

fuzz-quick: ## the same for one minute
	@$(MAKE) fuzz FUZZ_SECONDS=60

cross: ## compile the library for 64-bit ARM, and run its kernels in an emulator
	@tools/install-packages build cross
	@$(cmake) -B build-aarch64 -DLZ_OBJECTS_ONLY=ON -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake >/dev/null
	@$(ninja) -C build-aarch64
	@LZ_TEST_SCALE=5 qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu max build-aarch64/test_random_shapes single
	@LZ_TEST_SCALE=15 LZ_TEST_ISA=armbf16 qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu max build-aarch64/test_random_shapes bf16

format: ## rewrite the sources in the house style
	@tools/install-packages lint
	@clang-format -i $(sources)

lint: ## check the sources with clang-format, clang-tidy and cppcheck
	@tools/install-packages build lint
	@$(cmake) -B build >/dev/null
	@tools/lint build $(JOBS) $(sources)

docs: ## make pages from the headers, build/docs/html; a warning is an error
	@tools/install-packages docs
	@mkdir -p build/docs
	@LZ_VERSION=$$(sed -n 's/^#define LZ_VERSION "\(.*\)"/\1/p' include/lazuli.h) doxygen docs/Doxyfile
	@echo "build/docs/html/index.html"

deb: build ## make a Debian package, build/lazuli_*.deb
	@tools/install-packages build deb
	@cd build && cpack -G DEB >cpack.log 2>&1 || { cat cpack.log; exit 1; }
	@ls build/lazuli_*.deb

install: build ## install into PREFIX=/usr/local, below DESTDIR
	@DESTDIR=$(DESTDIR) cmake --install build --prefix $(PREFIX) >/dev/null
	@echo "installed in $(DESTDIR)$(PREFIX)"

clean: ## remove everything that was built
	@rm -rf build build-asan build-threads build-coverage build-fuzz build-aarch64

help:
	@echo "make [target]"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
