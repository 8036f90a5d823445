# falx: one readable Makefile. `make help` lists what it can do; `make V=1` shows the commands.
#
# B is the build folder. The sanitizer flavours are the same rules with other flags and another B.

B        ?= build
CC       ?= gcc
PKGS     := zlib libpng jansson sqlite3
WARN     := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
            -Wformat=2 -Wvla -Wundef -Werror
CFLAGS   ?= -O3 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong
LDFLAGS  ?= -pie -Wl,-z,relro,-z,now
# -ffp-contract=off: a*b+c rounds the same on every machine and in every build. -fPIC: all of it may end up in
# the shared library.
override CFLAGS += -std=c11 -D_GNU_SOURCE -Isrc -Itests -fno-math-errno -ffp-contract=off -fPIC -pthread \
            $(WARN) $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS     := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -ldl -pthread
# Only the helper program and the tests that make HDF5 files see libhdf5. The helper takes it in whole where it
# can: Debian's shared one brings libcurl and thirty more libraries to each start.
HDF5     = $(shell pkg-config --cflags --libs hdf5)
HDF5_IN  = $(shell pkg-config --cflags --libs-only-L hdf5) -l:libhdf5.a -l:libsz.a -l:libaec.a

LIB_DIRS := base volume data prepare sample phantom device net predict train method runs score api report compare
LIB_OBJ  := $(patsubst %.c,$(B)/%.o,$(foreach d,$(LIB_DIRS),$(wildcard src/$(d)/*.c)))
# src/device/isa holds the hot loops: each file is compiled once per level of the processor, its
# symbols end in the level's name, and cpu.c chooses at start (see src/device/isa/isa.h).
LEVELS   := base avx2 avx512 avx512bf16 amx
MARCH_base := x86-64
MARCH_avx2 := x86-64-v3
MARCH_avx512 := x86-64-v4 -mprefer-vector-width=512
MARCH_avx512bf16 := $(MARCH_avx512) -mavx512bf16
MARCH_amx := sapphirerapids -mprefer-vector-width=512
ISA_OBJ  := $(foreach l,$(LEVELS),$(patsubst src/%.c,$(B)/src/%-$(l).o,$(wildcard src/device/isa/*.c)))
LIB_OBJ  += $(ISA_OBJ) $(patsubst %.c,$(B)/%.o,$(wildcard src/device/cuda/*.c))
# `make cuda`: src/device/cuda/*.cu becomes libfalx_cuda.so, which the program opens at run time where it finds
# one. Code for Ampere and Hopper, and what a driver can make later ones' code from.
NVCC     ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA_ARCH := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
            -gencode arch=compute_90,code=compute_90
NVFLAGS  := -std=c++17 -O3 -Isrc -Xcompiler -fPIC,-Wall,-fvisibility=hidden $(CUDA_ARCH)
CUDA_OBJ := $(patsubst %.cu,$(B)/%.o,$(wildcard src/device/cuda/*.cu))
CLI_OBJ  := $(patsubst %.c,$(B)/%.o,$(wildcard src/cli/*.c))
CLI_PART := $(filter-out %/main.o,$(CLI_OBJ))
PROGRAM  := $(B)/falx $(B)/falx-hdf5 $(B)/falx-limit
# The public library: only names that begin with falx_ can be seen from outside.
LIBRARY  := $(B)/lib/libfalx.a $(B)/lib/libfalx.so $(B)/lib/pkgconfig/falx.pc $(B)/lib/example
VERSION  := $(shell sed -n 's/.*FALX_VERSION "\(.*\)"/\1/p' src/base/version.h)
BUNDLE   := $(B)/falx-$(VERSION)-linux-x86_64
TESTS    := $(patsubst tests/%.c,$(B)/%,$(wildcard tests/test_*.c))
REPLAYS  := $(patsubst tests/fuzz/fuzz_%.c,$(B)/replay_%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZERS  := $(patsubst tests/fuzz/%.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))

Q        := $(if $(V),,@)
SAY      = @echo "  $(1)	$(patsubst $(B)/%,%,$@)"

.PHONY: all cuda emulated bundle help deps test check soak demo lint format fuzz bench asan tsan size clean
.DEFAULT_GOAL := all

all: deps                       ## build the program at build/falx and the library in build/lib
	@$(MAKE) --no-print-directory -j$(shell nproc) $(PROGRAM) $(LIBRARY)

cuda: deps                      ## the library for NVIDIA GPUs, build/libfalx_cuda.so; needs nvcc
	@[ -n "$(NVCC)" ] || { echo "make cuda: nvcc was not found: install CUDA 13 or say NVCC=/path/to/nvcc"; exit 1; }
	@$(MAKE) --no-print-directory -j$(shell nproc) $(B)/libfalx_cuda.so

emulated: all                   ## the GPU's code with the processor as the GPU, for tests: build/emulated
	@$(MAKE) --no-print-directory -j$(shell nproc) $(addprefix $(EMULATED)/,falx libfalx_cuda.so \
	    cuda_conv_check cuda_heads_check cuda_loops_check)

bundle: all                     ## build/falx-VERSION-linux-x86_64 and .tar.xz: falx with all it needs, for other Linuxes
	@$(MAKE) --no-print-directory -j$(shell nproc) $(B)/falx-launch $(if $(NVCC),$(B)/libfalx_cuda.so)
	@tools/bundle $(B) $(BUNDLE)
	$(Q)tar -cJf $(BUNDLE).tar.xz -C $(B) --sort=name --owner=0 --group=0 --numeric-owner $(notdir $(BUNDLE))
	@ls -s --block-size=MB $(BUNDLE).tar.xz

help:                           ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 10

deps:                           ## install the Debian packages that are missing
	@tools/deps

check: all                      ## in minutes: unit tests and the fault catalogue, no sanitizers
	@tools/deps oracles
	@tools/run-tests check

test: all                       ## all tests: TESTING.md says what they prove
	@tools/deps oracles
	@tools/run-tests test

soak: all                       ## for hours: more kills, TSan and ASan on everything, fuzzing
	@tools/deps oracles
	@tools/run-tests soak

demo: all                       ## train a baseline and AUA on synthetic scans, score both; demo/report.html
	@tools/demo

lint: deps                      ## format, second compiler, allowed includes, libraries in one place, widths, marks
	@tools/lint

format: deps                    ## format all sources as .clang-format says
	@tools/format

fuzz: deps                      ## fuzz every parser for SECONDS_EACH (default 60)
	@$(MAKE) --no-print-directory -j$(shell nproc) B=build/fuzz CC=clang LDFLAGS= CFLAGS="-O1 -g \
	    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" fuzzers
	@tools/fuzz

bench: all                      ## speed of reading, sampling, preparing and scoring, with ratios
	@build/falx bench
	@tools/bench

asan: deps                      ## build with address and undefined-behaviour sanitizers in build/asan
	@$(MAKE) --no-print-directory -j$(shell nproc) B=build/asan LDFLAGS= CFLAGS="-O1 -g \
	    -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" everything

tsan: deps                      ## build with the thread sanitizer in build/tsan
	@$(MAKE) --no-print-directory -j$(shell nproc) B=build/tsan LDFLAGS= \
	    CFLAGS="-O1 -g -fsanitize=thread" $(or $(TSAN_TARGETS),everything)

size:                           ## code lines, comments, function lengths per folder; longest files and functions
	@tools/size

clean:                          ## remove build/ and demo/
	rm -rf build demo

# ---- rules --------------------------------------------------------------------------------------

.PHONY: everything fuzzers
everything: $(PROGRAM) $(LIBRARY) $(TESTS) $(REPLAYS) $(B)/faults
fuzzers: $(FUZZERS)

$(B)/libfalx.a: $(LIB_OBJ)
	$(call SAY,ar)
	$(Q)rm -f $@; ar rcs $@ $^

$(B)/lib/falx.o: $(LIB_OBJ)
	$(call SAY,ld)
	$(Q)mkdir -p $(@D); ld -r -o $@.all $^ && objcopy --wildcard --keep-global-symbol='falx_*' $@.all $@ && rm $@.all

$(B)/lib/libfalx.a: $(B)/lib/falx.o
	$(call SAY,ar)
	$(Q)rm -f $@; ar rcs $@ $^

$(B)/lib/libfalx.so: $(B)/lib/falx.o
	$(call SAY,link)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,libfalx.so.0 -o $@ $^ $(LIBS) && ln -sf libfalx.so $@.0

# Where the build stands now.
$(B)/lib/pkgconfig/falx.pc: src/base/version.h Makefile
	$(Q)mkdir -p $(@D); printf '%s\n' 'Name: falx' 'Description: semi-supervised 3D medical image segmentation' \
	    'Version: $(VERSION)' 'Requires.private: $(PKGS)' 'Cflags: -I$(abspath src/api)' \
	    'Libs: -L$(abspath $(B)/lib) -lfalx' 'Libs.private: -lm -ldl -pthread' > $@

$(B)/lib/example: examples/predict.c $(B)/lib/libfalx.so $(B)/lib/pkgconfig/falx.pc
	$(call SAY,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $$(PKG_CONFIG_PATH=$(B)/lib/pkgconfig pkg-config --cflags --libs falx) \
	    -Wl,-rpath,$(abspath $(B)/lib)

$(B)/falx: $(CLI_OBJ) $(B)/libfalx.a
	$(call SAY,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/falx-limit: src/helper/falx-limit.c $(B)/libfalx.a
	$(call SAY,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/falx-hdf5: src/helper/falx-hdf5.c $(B)/libfalx.a
	$(call SAY,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(HDF5_IN) $(LIBS) 2>/dev/null || \
	    $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(HDF5) $(LIBS)

$(B)/falx-launch: src/helper/falx-launch.c $(B)/libfalx.a
	$(call SAY,link)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -static-pie -o $@ $^

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call SAY,cc)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

define isa_rule
$(B)/src/device/isa/%-$(1).o: src/device/isa/%.c
	@mkdir -p $$(@D)
	$$(call SAY,cc)
	$$(Q)$$(CC) $$(CFLAGS) -Wno-psabi -march=$$(MARCH_$(1)) -DISA_LEVEL=$(1) -DISA_LEVEL_$(1)=1 -MMD -MP -c -o $$@ $$<
endef
$(foreach l,$(LEVELS),$(eval $(call isa_rule,$(l))))

# Voxel loops round every product by itself, as on the processor: the same numbers there and here.
$(B)/src/device/cuda/loops%.o: NVFLAGS += -fmad=false
$(CUDA_OBJ): $(B)/%.o: %.cu
	@mkdir -p $(@D)
	$(call SAY,nvcc)
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -c -o $@ $<

$(B)/libfalx_cuda.so: $(CUDA_OBJ)
	$(call SAY,link)
	$(Q)$(NVCC) $(CUDA_ARCH) -shared -cudart static -Xlinker -z,defs,-z,relro,-z,now -o $@ $^

$(B)/cuda_%: tests/cuda_%.cu $(CUDA_OBJ)
	$(call SAY,test)
	$(Q)$(NVCC) $(NVFLAGS) -Itests -fmad=false -Xcompiler -ffp-contract=off -o $@ $^

# `make emulated`: the same sources with the processor as the GPU (tests/emulated), so that kernels are tested
# where there is none: build/emulated/falx --device cuda, and the check programs. Launches are spelt as C++.
EMULATED := $(B)/emulated
EMU_TEXT := $(patsubst %,$(EMULATED)/%,$(wildcard src/device/cuda/*.cu src/device/cuda/*.cuh))
EMU_OBJ  := $(patsubst src/device/cuda/%.cu,$(EMULATED)/%.o,$(wildcard src/device/cuda/*.cu)) $(EMULATED)/gpu.o
EMU_CXX  := $(CXX) -std=c++17 -O3 -march=native -g -fPIC -pthread -fno-strict-aliasing -ffp-contract=off -w \
            -Itests/emulated -I$(EMULATED)/src -Isrc -Itests -x c++
$(EMU_TEXT): $(EMULATED)/%: %
	@mkdir -p $(@D)
	$(Q)sed -E 's/([A-Za-z_#0-9]+(<[^<>]*>)?)<<</emulated_launch(\1, /; s/>>>\(/)(/' $< > $@

$(EMULATED)/gpu.o: tests/emulated/gpu.cc | $(EMU_TEXT)
	$(call SAY,c++)
	$(Q)$(EMU_CXX) -MMD -MP -c -o $@ $<

$(EMULATED)/%.o: $(EMULATED)/src/device/cuda/%.cu | $(EMU_TEXT)
	$(call SAY,c++)
	$(Q)$(EMU_CXX) -MMD -MP -c -o $@ $<

$(EMULATED)/libfalx_cuda.so: $(EMU_OBJ)
	$(call SAY,link)
	$(Q)$(CXX) -shared -o $@ $^

$(EMULATED)/falx: $(B)/falx
	$(Q)mkdir -p $(@D); cp $< $@

$(EMULATED)/cuda_%: tests/cuda_%.cu tests/cuda_check.h $(EMU_OBJ)
	$(call SAY,test)
	$(Q)$(EMU_CXX) -DEMULATED_HOST -o $@ $< -x none $(EMU_OBJ)

$(B)/test_%: tests/test_%.c $(B)/libfalx.a $(CLI_PART)
	$(call SAY,test)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -o $@ $< $(CLI_PART) $(B)/libfalx.a -lcmocka $(HDF5) $(LIBS)

$(B)/faults: $(wildcard tests/faults/*.[ch]) tests/fact.h $(B)/libfalx.a
	$(call SAY,test)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -Itests/faults -o $@ $(filter %.c %.a,$^) $(HDF5) $(LIBS)

$(B)/replay_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(B)/libfalx.a $(CLI_PART)
	$(call SAY,test)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) $(CLI_PART) $(B)/libfalx.a $(LIBS)

$(B)/fuzz_%: tests/fuzz/fuzz_%.c $(B)/libfalx.a $(CLI_PART)
	$(call SAY,fuzz)
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $< $(CLI_PART) $(B)/libfalx.a $(LIBS)

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(CUDA_OBJ:.o=.d) $(TESTS:=.d) $(EMU_OBJ:.o=.d)
