# The CUDA backend: src/cuda/, built when DI_CUDA is on and the pinned toolkit is found.
#
#   DI_CUDA=AUTO   (default) with a toolkit of the pinned release, without one say so and go on
#   DI_CUDA=ON     a missing toolkit is an error            DI_CUDA=OFF   never
#   DI_CUDA_ROOT   where to look first: a toolkit's folder, or a Python environment holding the wheels nvidia-cuda-nvcc,
#                  nvidia-nvvm, nvidia-cuda-crt, nvidia-cuda-runtime and nvidia-cuda-cccl of that release
#
# Then the environment variables CUDA_HOME and CUDA_PATH, the search path, and the usual folder. A newer release is refused: what it
# compiles may need a newer driver than GPU hosts have.
#
# Every .cu file becomes one object with code for Hopper (sm_90a) and Blackwell (sm_100a). CMake's own CUDA language is not used: it
# insists on linking test programs and on a toolkit in one piece, which the wheels are not. The runtime is linked statically.
#
# The room becomes part of the libraries (rooms.cmake), with the runtime inside; DI_HAVE_CUDA tells ops/backend_list.c. Targets: deepinfer_cuda
# (the internal library and the toolkit's headers, for tests and benches), bench_cuda (bench/cuda/*.cu and *.c).

set(DI_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set(DI_CUDA_ROOT "" CACHE PATH "Toolkit, or Python environment with the toolkit's wheels")
set(di_cuda_release 13.0)
set(di_cuda_found OFF)

# The first nvcc of the pinned release, its includes and its static runtime.
function(di_find_cuda)
    set(places ${DI_CUDA_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH})
    set(folders "")
    foreach(place ${places})
        file(GLOB wheels ${place}/lib/python*/site-packages/nvidia/cu13)
        list(APPEND folders ${place} ${wheels})
    endforeach()
    find_program(on_path nvcc NO_CACHE)
    if(on_path)
        get_filename_component(on_path ${on_path} REALPATH)
        get_filename_component(on_path ${on_path} DIRECTORY)
        get_filename_component(on_path ${on_path} DIRECTORY)
        list(APPEND folders ${on_path})
    endif()
    list(APPEND folders /usr/local/cuda)
    set(why "no nvcc")
    foreach(folder ${folders})
        if(NOT EXISTS ${folder}/bin/nvcc)
            continue()
        endif()
        execute_process(COMMAND ${folder}/bin/nvcc --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
        if(failed OR NOT text MATCHES "release ([0-9.]+)," OR NOT CMAKE_MATCH_1 VERSION_EQUAL di_cuda_release)
            set(why "nvcc is not of release ${di_cuda_release}")
            continue()
        endif()
        find_path(include cuda_runtime_api.h PATHS ${folder}/include ${folder}/targets/x86_64-linux/include NO_DEFAULT_PATH NO_CACHE)
        find_library(runtime libcudart_static.a PATHS ${folder}/lib64 ${folder}/lib ${folder}/targets/x86_64-linux/lib
            NO_DEFAULT_PATH NO_CACHE)
        if(include AND runtime)
            set(di_cuda_found ON PARENT_SCOPE)
            set(di_cuda_nvcc ${folder}/bin/nvcc PARENT_SCOPE)
            set(di_cuda_include ${include} PARENT_SCOPE)
            set(di_cuda_runtime ${runtime} PARENT_SCOPE)
            return()
        endif()
        set(why "nvcc has no runtime headers or libcudart_static.a beside it")
    endforeach()
    set(di_cuda_why ${why} PARENT_SCOPE)
endfunction()

# Objects of .cu files: appends their paths to the list named `out`.
function(di_cuda_objects out)
    set(flags -std=c++17 -O3 -fmad=false -Xcompiler=-fPIC,-fno-exceptions,-fno-threadsafe-statics,-Wall -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
        -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100a,code=sm_100a)
    if(DI_WERROR)
        list(APPEND flags -Werror all-warnings)
    endif()
    foreach(file ${ARGN})
        file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${file})
        set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
        get_filename_component(folder ${object} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        add_custom_command(OUTPUT ${object}
            COMMAND ${di_cuda_nvcc} ${flags} -MD -MF ${object}.d -c ${file} -o ${object}
            DEPENDS ${file} DEPFILE ${object}.d VERBATIM COMMENT "Building CUDA object ${name}.o")
        set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
        list(APPEND ${out} ${object})
    endforeach()
    set(${out} ${${out}} PARENT_SCOPE)
endfunction()

if(DI_CUDA STREQUAL "OFF" OR DI_SANITIZE OR DI_FUZZ OR (DI_ROOMS AND NOT "cuda" IN_LIST DI_ROOMS))
    return()
endif()
di_find_cuda()
if(NOT di_cuda_found)
    if(DI_CUDA STREQUAL "AUTO")
        message(STATUS "CUDA is off: ${di_cuda_why}")
        return()
    endif()
    message(FATAL_ERROR "DI_CUDA=ON: ${di_cuda_why}; DI_CUDA_ROOT names a toolkit or an environment with its wheels")
endif()
message(STATUS "CUDA is on: ${di_cuda_nvcc}")

file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/kernels/*.cu)
di_cuda_objects(di_kernel_objects ${files})
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.c)
add_library(di_cuda OBJECT ${files})
target_link_libraries(di_cuda PRIVATE di_flags di_deps)
target_include_directories(di_cuda SYSTEM PRIVATE ${di_cuda_include})
set(di_cuda_libraries ${di_cuda_runtime} rt dl)

add_library(deepinfer_cuda INTERFACE)
target_include_directories(deepinfer_cuda SYSTEM INTERFACE ${di_cuda_include})
target_link_libraries(deepinfer_cuda INTERFACE deepinfer_int)

# bench/cuda/lab_<x>.cu and bench_<x>.cu are programs of their own.
add_custom_target(bench_cuda)
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/cuda/lab_*.cu ${CMAKE_SOURCE_DIR}/bench/cuda/bench_*.cu)
foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    set(objects "")
    di_cuda_objects(objects ${file})
    add_executable(${stem} EXCLUDE_FROM_ALL ${objects})
    set_target_properties(${stem} PROPERTIES LINKER_LANGUAGE C RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gpu)
    target_link_libraries(${stem} PRIVATE deepinfer_cuda stdc++)
    add_dependencies(bench_cuda ${stem})
endforeach()
