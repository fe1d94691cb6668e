# Flags of every target, carried by the interface library di_flags.
#
# Results must not depend on compiler liberties: no -ffast-math, no contraction into fused multiply-adds (a kernel that wants
# one writes it), no -march=native. Code for newer instruction sets lives in files of its own, named by suffix, and is
# reached only after a look at the processor.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")

add_library(di_flags INTERFACE)
target_compile_definitions(di_flags INTERFACE _GNU_SOURCE)
target_compile_options(di_flags INTERFACE
    -ffp-contract=off -fno-math-errno
    -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes
    # __FILE__ stays relative to the source tree, so that messages and binaries name no machine's folders.
    "-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=")
target_include_directories(di_flags INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)

if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # gcc can't know that err_set() never returns DI_OK, so after inlining it takes every output of a failed call for read.
    # valgrind looks for the real cases in the tests.
    target_compile_options(di_flags INTERFACE -Wno-maybe-uninitialized)
endif()

if(NOT DI_FUZZ)
    # A libFuzzer entry point has no header.
    target_compile_options(di_flags INTERFACE -Wmissing-prototypes)
endif()

if(DI_WERROR)
    target_compile_options(di_flags INTERFACE -Werror)
endif()

if(DI_SANITIZE)
    target_compile_options(di_flags INTERFACE -fsanitize=${DI_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(di_flags INTERFACE -fsanitize=${DI_SANITIZE})
endif()

# Kernels take most of the time of a sanitized test. Their accumulators stay in registers when the stack is not instrumented; heap
# and globals still are, and the checks left out are of pointers that the address sanitizer sees fail.
add_library(di_kernel_flags INTERFACE)
if(DI_SANITIZE)
    target_compile_options(di_kernel_flags INTERFACE -O3)
    if(DI_SANITIZE MATCHES "address")
        target_compile_options(di_kernel_flags INTERFACE -fno-sanitize=null,alignment,pointer-overflow,object-size
            "$<IF:$<C_COMPILER_ID:GNU>,--param=asan-stack=0,SHELL:-mllvm -asan-stack=0>")
    endif()
endif()

# Suffix of a file name -> flags of that file. The processor check in front of it must ask for all of them.
set(di_isa_avx2 -mavx2 -mfma -mbmi -mbmi2 -mlzcnt -mpopcnt -mf16c)
set(di_isa_avx512 ${di_isa_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
set(di_isa_vnni ${di_isa_avx512} -mavx512vnni)
set(di_isa_gfni ${di_isa_avx512} -mgfni)
set(di_isa_bf16 ${di_isa_gfni} -mavx512bf16)
set(di_isa_amx ${di_isa_vnni} -mavx512vbmi -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16)

function(di_isa_flags)
    foreach(file ${ARGN})
        set(options "")
        # The name is matched last: each MATCHES sets CMAKE_MATCH_1 anew.
        if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND file MATCHES "_(avx2|avx512|vnni|gfni|bf16|amx)\\.c$")
            set(options ${di_isa_${CMAKE_MATCH_1}})
        endif()
        if(DI_SANITIZE STREQUAL "thread" AND (file MATCHES "/ops/" OR options))
            # Inner loops over memory that a thread was given: every access would call the sanitizer, which made the suite four
            # times as long. Who is given what is decided outside, where it looks.
            list(APPEND options -fno-sanitize=thread)
        endif()
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${options}")
    endforeach()
endfunction()
