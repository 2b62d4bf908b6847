# Everything is built and run from here; `make` alone builds build/clover, `make help` lists the rest.
#
# One tree of objects per VARIANT, under build/VARIANT:
#   release   gcc -O3, what users get          asan   gcc with address and undefined-behaviour sanitizers
#   fuzz      clang with libFuzzer             gcc-O0, clang-O3, ...   COMPILER-OPTIMISATION
# Sources are found by pattern: ref/ is the library, tools/ the command line, tests/test_*.c one suite each, and every
# other tests/*.c (but vectors*.c and bits.c, which are programs) is linked into all suites.

VARIANT ?= release
ifeq ($(VARIANT),release)
  CC := gcc
  OPT := -O3
else ifeq ($(VARIANT),asan)
  CC := gcc
  OPT := -O1 -g
  SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifeq ($(VARIANT),fuzz)
  CC := clang
  OPT := -O1 -g
  SANITIZE := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
else
  CC := $(firstword $(subst -, ,$(VARIANT)))
  OPT := -$(word 2,$(subst -, ,$(VARIANT)))
endif
B := build/$(VARIANT)

# ---- flags ----------------------------------------------------------------------------------------------------------
# CFLAGS and LDFLAGS are the caller's; what the project needs to be right stands in FLAGS. No contraction to fused
# multiply-add anywhere: exact arithmetic must give the same bits on every compiler and CPU ([NUM-1]).
CFLAGS ?= $(OPT)
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
comma := ,
PC = $(shell pkg-config $(1) 2>/dev/null)
PACKAGES := jansson libpcre2-8 libutf8proc libcrypto
# OpenBLAS without threads: the threaded build starts its pool when it is loaded. Debian keeps the serial one in a folder of its own.
SERIAL_BLAS := $(firstword $(wildcard /usr/lib/*/openblas-serial))
BLAS_FLAGS := $(if $(SERIAL_BLAS),-I$(patsubst /usr/lib/%,/usr/include/%,$(SERIAL_BLAS)),$(call PC,--cflags openblas))
BLAS_LIBS := $(if $(SERIAL_BLAS),-L$(SERIAL_BLAS) -Wl$(comma)-rpath$(comma)$(SERIAL_BLAS) -lopenblas,$(or $(call PC,--libs openblas),-lopenblas))
FLAGS := -std=c11 -D_POSIX_C_SOURCE=200809L -ffp-contract=off $(WARNINGS) $(SANITIZE) -MMD -MP $(call PC,--cflags $(PACKAGES)) $(BLAS_FLAGS)
LIBS := $(call PC,--libs $(PACKAGES)) $(BLAS_LIBS) -lm
# Suites spend their time in the library; compiling them lightly saves more than it costs.
TEST_FLAGS := $(call PC,--cflags check mpfr) -O1
TEST_LIBS := $(call PC,--libs check mpfr)

# `make V=1` prints whole commands.
SAY := @$(if $(V),:,echo)
RUN := $(if $(V),,@)

# ---- sources --------------------------------------------------------------------------------------------------------
# The fast kernels are compiled once per instruction set; the one that the CPU has is chosen when the program runs.
KERNELS := $(wildcard ref/math/kernels.c)
ISAS := baseline $(if $(filter x86_64,$(shell uname -m)),avx2 avx512)
FLAGS_baseline :=
FLAGS_avx2 := -mavx2
FLAGS_avx512 := -mavx512f -mprefer-vector-width=512

LIB_OBJS := $(patsubst %.c,$(B)/%.o,$(filter-out $(KERNELS),$(wildcard ref/*.c ref/*/*.c))) \
            $(if $(KERNELS),$(ISAS:%=$(B)/ref/math/kernels_%.o))
TOOL_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tools/*.c tools/hypotheses/*.c))
SUITES := $(patsubst tests/%.c,$(B)/tests/%,$(wildcard tests/test_*.c))
SUPPORT_OBJS := $(patsubst %.c,$(B)/%.o,$(filter-out tests/test_%.c tests/vectors%.c tests/bits.c,$(wildcard tests/*.c)))
VECTORS_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/vectors*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))

# ---- targets --------------------------------------------------------------------------------------------------------
.PHONY: all help demo check vectors peers nano bench fuzz install deps clean suites bits need need-tests
.SECONDARY:
.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

all: build/clover

help:
	@echo 'make             build build/clover'
	@echo 'make demo        install what is missing, build, and show a small model answering in all three modes'
	@echo 'make check       install what is missing, build with gcc and clang, run every test; ends with "N passed, N failed"'
	@echo 'make vectors     run every vector in the folder VECTORS=DIR'
	@echo 'make peers       compare with Transformers, llama.cpp and the real vocabulary (downloads them into build/)'
	@echo 'make nano        train the small model of golden/ again, in build/nano (downloads PyTorch; hours)'
	@echo 'make bench       measure speed'
	@echo 'make fuzz        fuzz the readers, FUZZ_SECONDS=60 each'
	@echo 'make install     into PREFIX=/usr/local (DESTDIR is honoured)'
	@echo 'make deps        install the Debian packages that building and testing need'
	@echo 'make clean       remove build/'

demo:
	@./tools/install-deps.sh build
	@$(MAKE) all
	@./tools/demo.sh

check:
	+@MAKE='$(MAKE)' ./tests/run.sh

vectors: $(B)/vectors
	@test -n '$(VECTORS)' || { echo 'make vectors needs a folder: make vectors VECTORS=DIR' >&2; exit 2; }
	@$(B)/vectors '$(VECTORS)'

peers: all
	@./tests/peers/run.sh

nano: all
	@./tools/python/nano/make.sh

bench: all
	@./tools/bench.sh

FUZZ_SECONDS ?= 60
ifeq ($(VARIANT),fuzz)
fuzz: $(FUZZERS)
	@for f in $(FUZZERS); do n=$${f##*/}; mkdir -p $(B)/corpus/$$n; echo "fuzz: $$n, $(FUZZ_SECONDS) s"; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -print_final_stats=1 $(B)/corpus/$$n $$(ls -d tests/fuzz/corpus/$$n 2>/dev/null) \
	    >$(B)/$$n.log 2>&1 || { tail -40 $(B)/$$n.log; exit 1; }; grep -h stat::number_of_executed_units $(B)/$$n.log; done
else
fuzz:
	@./tools/install-deps.sh fuzz
	@$(MAKE) VARIANT=fuzz fuzz
endif

PREFIX ?= /usr/local
install: all $(B)/libclover.a
	install -D -m 755 build/clover '$(DESTDIR)$(PREFIX)/bin/clover'
	install -D -m 644 $(B)/libclover.a '$(DESTDIR)$(PREFIX)/lib/libclover.a'
	install -D -m 644 ref/clover.h '$(DESTDIR)$(PREFIX)/include/clover.h'

deps:
	@./tools/install-deps.sh check

clean:
	rm -rf build

suites: $(SUITES)
bits: $(B)/bits

# Is everything there that compiling needs? Else one line that says what to install.
need:
	@./tools/install-deps.sh --missing build
need-tests:
	@./tools/install-deps.sh --missing check

# ---- building -------------------------------------------------------------------------------------------------------
build/clover: build/release/clover
	@cp -f $< $@
ifneq ($(VARIANT),release)
build/release/clover:
	@$(MAKE) VARIANT=release $@
endif

$(B)/clover: $(TOOL_OBJS) $(B)/libclover.a
	$(SAY) 'LD  $@'
	$(RUN)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/libclover.a: $(LIB_OBJS)
$(B)/libtools.a: $(TOOL_OBJS)
%.a:
	@rm -f $@
	$(RUN)ar rcs $@ $^

$(SUITES): $(B)/tests/%: $(B)/tests/%.o $(SUPPORT_OBJS) $(B)/libtools.a $(B)/libclover.a
	$(SAY) 'LD  $@'
	$(RUN)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

$(B)/vectors: $(VECTORS_OBJS) $(SUPPORT_OBJS) $(B)/libtools.a $(B)/libclover.a
	$(SAY) 'LD  $@'
	$(RUN)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

$(B)/bits: $(B)/tests/bits.o $(B)/libclover.a
	$(SAY) 'LD  $@'
	$(RUN)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

$(FUZZERS): $(B)/%: $(B)/tests/fuzz/%.o $(B)/libclover.a
	$(SAY) 'LD  $@'
	$(RUN)$(CC) -fsanitize=fuzzer $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/tests/%.o: tests/%.c Makefile | need-tests
	@mkdir -p $(@D)
	$(SAY) 'CC  $@'
	$(RUN)$(CC) $(CFLAGS) $(FLAGS) $(TEST_FLAGS) -c -o $@ $<

$(B)/ref/math/kernels_%.o: ref/math/kernels.c Makefile | need
	@mkdir -p $(@D)
	$(SAY) 'CC  $@'
	$(RUN)$(CC) $(CFLAGS) $(FLAGS) $(FLAGS_$*) -DKERNELS_ISA=$* -c -o $@ $<

# A golden bundle says which commit made it.
$(B)/tools/golden_folder.o: FLAGS += -DCLOVER_COMMIT='"$(shell git describe --always --dirty 2>/dev/null || echo unknown)"'
$(B)/tools/golden_folder.o: $(wildcard .git/logs/HEAD)

$(B)/%.o: %.c Makefile | need
	@mkdir -p $(@D)
	$(SAY) 'CC  $@'
	$(RUN)$(CC) $(CFLAGS) $(FLAGS) -c -o $@ $<

%.d: ;
-include $(shell find $(B) -name '*.d' 2>/dev/null)
