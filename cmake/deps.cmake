# Foreign libraries. Debian package names are in packaging/apt.txt; nothing is downloaded here.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# name in CMake -> pkg-config module. The same list goes into deepinfer.pc and the CMake package.
set(di_pkg_modules libcrypto libxxhash libutf8proc)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

add_library(di_deps INTERFACE)
target_link_libraries(di_deps INTERFACE
    PkgConfig::CRYPTO PkgConfig::XXHASH PkgConfig::UTF8PROC Threads::Threads m)

# The disk tier of the KV cache: its index, and I/O that is faster than with threads. Without LMDB there is no disk tier.
option(DI_LMDB "Build the disk tier of the KV cache (liblmdb)" ON)
option(DI_LIBURING "Use io_uring for the disk tier (liburing)" ON)
foreach(library LMDB LIBURING)
    if(DI_${library})
        string(TOLOWER ${library} module)
        pkg_check_modules(${library} REQUIRED IMPORTED_TARGET ${module})
        target_link_libraries(di_deps INTERFACE PkgConfig::${library})
        target_compile_definitions(di_deps INTERFACE DI_${library}=1)
        list(APPEND di_pkg_modules ${module})
    endif()
endforeach()

# Threads on processors of their own, memory spread over nodes (core/cpus.h). Without it both are left to the system.
option(DI_HWLOC "Pin threads through hwloc, where it is installed" ON)
if(DI_HWLOC)
    pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc)
    if(HWLOC_FOUND)
        target_link_libraries(di_deps INTERFACE PkgConfig::HWLOC)
        target_compile_definitions(di_deps INTERFACE DI_HWLOC=1)
        # Not as a module: what its static library would need (libudev) is no part of its Debian package.
        set(di_private_libs hwloc)
    else()
        message(STATUS "hwloc is not installed: --cpu-pin has no effect")
    endif()
endif()

# The command only.
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)

# The server only.
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)

# Tests only.
pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
