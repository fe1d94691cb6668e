# Tests, fuzzers and benches are found by name; adding a file is enough.
#
#   tests/<room>/test_<x>.c     label unit       tests/<room>/prop_<x>.c    label prop
#   tests/<room>/vectors_<x>.c  label vectors    tests/<room>/net_<x>.c     label net
#   tests/<room>/slow_<x>.c     label slow       tests/<room>/gpu_<x>.c     label gpu
#   tests/<room>/test_<x>.py    label unit, unittest over the standard library only
#   tests/**/e2e_<x>.py         label e2e, pytest (tests/requirements.txt)
#   any other tests/<room>/*.c is linked into every test of that room, tests/support/*.c into every test
#
# Every test also carries its folder as a label. A line `ctest: serial timeout=600` in a file's head comment gives it the
# machine to itself or another time limit than 60 s (unit), 300 s (others), 1800 s (slow).
# Each test sees DI_SOURCE_DIR, DI_BUILD_DIR and DI_BIN (the built command).

set(di_test_kinds test prop vectors net slow gpu)

function(di_test_properties name file folder label)
    if(label STREQUAL "unit")
        set(timeout 60)
    elseif(label STREQUAL "slow")
        set(timeout 1800)
    else()
        set(timeout 300)
    endif()
    file(STRINGS ${file} directives REGEX "ctest:" LIMIT_COUNT 1)
    if(directives MATCHES "timeout=([0-9]+)")
        set(timeout ${CMAKE_MATCH_1})
    endif()
    if(DI_SANITIZE)
        math(EXPR timeout "${timeout} * 5")
    endif()
    set(sanitizer_env
        "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:allocator_may_return_null=1"
        "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1" "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
    set_tests_properties(${name} PROPERTIES LABELS "${label};${folder}" TIMEOUT ${timeout}
        ENVIRONMENT "DI_SOURCE_DIR=${CMAKE_SOURCE_DIR};DI_BUILD_DIR=${CMAKE_BINARY_DIR};DI_BIN=${CMAKE_BINARY_DIR}/deepinfer;${sanitizer_env}")
    if(directives MATCHES "serial")
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
endfunction()

function(di_add_c_tests)
    file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.c)
    file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true ${CMAKE_SOURCE_DIR}/tests/*)
    foreach(path ${folders})
        get_filename_component(folder ${path} NAME)
        if(NOT IS_DIRECTORY ${path} OR folder MATCHES "^(data|support)$" OR (DI_ROOMS AND NOT folder IN_LIST DI_ROOMS))
            continue()
        endif()
        file(GLOB files CONFIGURE_DEPENDS ${path}/*.c)
        set(shared_files ${files})
        list(FILTER shared_files EXCLUDE REGEX "/(test|prop|vectors|net|slow|gpu)_[^/]*\\.c$")
        list(APPEND shared_files ${support})
        foreach(file ${files})
            get_filename_component(stem ${file} NAME_WE)
            string(REGEX MATCH "^[a-z0-9]+" kind ${stem})
            if(NOT kind IN_LIST di_test_kinds OR NOT stem MATCHES "_")
                continue()
            endif()
            set(target ${folder}_${stem})
            add_executable(${target} ${file} ${shared_files})
            set_target_properties(${target} PROPERTIES OUTPUT_NAME ${stem}
                RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${folder})
            target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
            target_link_libraries(${target} PRIVATE deepinfer_int PkgConfig::CMOCKA)
            add_test(NAME ${folder}/${stem} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
            string(REPLACE "test" "unit" label ${kind})
            di_test_properties(${folder}/${stem} ${file} ${folder} ${label})
        endforeach()
    endforeach()
endfunction()

function(di_add_python_tests)
    find_package(Python3 QUIET COMPONENTS Interpreter)
    file(GLOB unit_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*/test_*.py)
    foreach(file ${unit_files})
        get_filename_component(stem ${file} NAME_WE)
        get_filename_component(folder ${file} DIRECTORY)
        get_filename_component(folder ${folder} NAME)
        add_test(NAME ${folder}/${stem} COMMAND ${Python3_EXECUTABLE} -B ${file} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
        di_test_properties(${folder}/${stem} ${file} ${folder} unit)
    endforeach()
    file(GLOB_RECURSE e2e_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/e2e_*.py)
    foreach(file ${e2e_files})
        get_filename_component(stem ${file} NAME_WE)
        get_filename_component(folder ${file} DIRECTORY)
        get_filename_component(folder ${folder} NAME)
        add_test(NAME ${folder}/${stem} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
            COMMAND ${DI_PYTHON} -B -m pytest -q -p no:cacheprovider --rootdir ${CMAKE_SOURCE_DIR}/tests ${file})
        di_test_properties(${folder}/${stem} ${file} ${folder} e2e)
    endforeach()
endfunction()

if(BUILD_TESTING AND NOT DI_FUZZ)
    if(CMOCKA_FOUND)
        di_add_c_tests()
    else()
        message(STATUS "cmocka is not there: the C tests are not built (packaging/apt-test.txt)")
    endif()
    if(NOT DI_ROOMS AND NOT DI_SANITIZE)
        di_add_python_tests()
    endif()
endif()

# fuzz/fuzz_<x>.c is a libFuzzer program; its seeds lie in fuzz/corpus/<x>/. `./dev fuzz` runs them.
if(DI_FUZZ)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/fuzz/fuzz_*.c)
    foreach(file ${files})
        get_filename_component(stem ${file} NAME_WE)
        add_executable(${stem} ${file})
        target_link_libraries(${stem} PRIVATE deepinfer_int)
        target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
        set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    endforeach()
endif()

# bench/bench_<x>.c, built by the target `bench` only. Other bench/*.c are linked into each. `./dev bench` runs them.
add_custom_target(bench)
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
set(shared_files ${files})
list(FILTER shared_files EXCLUDE REGEX "/bench_[^/]*\\.c$")
list(FILTER files INCLUDE REGEX "/bench_[^/]*\\.c$")
foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    add_executable(${stem} EXCLUDE_FROM_ALL ${file} ${shared_files})
    target_link_libraries(${stem} PRIVATE deepinfer_int)
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
    add_dependencies(bench ${stem})
endforeach()
