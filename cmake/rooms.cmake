# A room is src/<room>/*.c: one object library di_<room>. Three libraries are made of the rooms of the engine:
#   deepinfer_static  libdeepinfer.a, one object in which only di_ symbols are visible (room prefixes can't collide with a user's)
#   deepinfer_shared  libdeepinfer.so
#   deepinfer_int     every symbol visible to the linker; for tests, fuzzers and benches, never installed
# The command is tools/*.c over the public API, plus the rooms it may use besides (core, server, router).

set(di_library_rooms core ops cpu comm model tokenizer recipe grammar image kv engine chat)
set(di_program_rooms server router)
set(di_server_deps PkgConfig::MICROHTTPD PkgConfig::CURL)

# Files that a program carries inside: a C file with <name>_text and <name>_size for each pair NAME FILE (cmake/embed.cmake).
function(di_embed output)
    set(pairs ${ARGN})
    set(files "")
    while(pairs)
        list(POP_FRONT pairs name file)
        file(GLOB there CONFIGURE_DEPENDS ${file})
        list(APPEND files ${there})
    endwhile()
    list(JOIN ARGN "|" joined)
    add_custom_command(OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${output}" "-DPAIRS=${joined}" -DVERSION=${PROJECT_VERSION}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
        DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM COMMENT "Embedding ${output}")
endfunction()

set(di_library_targets "")
set(di_library_objects "")
foreach(room ${di_library_rooms} ${di_program_rooms})
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    if(NOT files OR (DI_ROOMS AND NOT room IN_LIST DI_ROOMS))
        continue()
    endif()
    if(room STREQUAL "server")
        di_embed(${CMAKE_BINARY_DIR}/srv_embedded.c
            srv_openapi ${CMAKE_SOURCE_DIR}/docs/openapi.json srv_console ${CMAKE_SOURCE_DIR}/console/index.html)
        list(APPEND files ${CMAKE_BINARY_DIR}/srv_embedded.c)
    endif()
    add_library(di_${room} OBJECT ${files})
    target_link_libraries(di_${room} PRIVATE di_flags di_deps ${di_${room}_deps})
    if(room MATCHES "^(ops|cpu)$")
        target_link_libraries(di_${room} PRIVATE di_kernel_flags)
    endif()
    di_isa_flags(${files})
    if(room IN_LIST di_library_rooms)
        list(APPEND di_library_targets di_${room})
        list(APPEND di_library_objects $<TARGET_OBJECTS:di_${room}>)
    endif()
endforeach()

if(TARGET di_cuda AND TARGET di_ops) # cuda.cmake
    target_compile_definitions(di_ops PRIVATE DI_HAVE_CUDA)
    list(APPEND di_library_targets di_cuda)
    list(APPEND di_library_objects $<TARGET_OBJECTS:di_cuda> ${di_kernel_objects})
endif()

if(NOT di_library_targets)
    message(FATAL_ERROR "no sources under src/ (DI_ROOMS='${DI_ROOMS}')")
endif()

add_library(deepinfer_int STATIC ${di_library_objects})
target_link_libraries(deepinfer_int PUBLIC di_flags di_deps ${di_cuda_libraries})
set_target_properties(deepinfer_int PROPERTIES LINKER_LANGUAGE C)

if(DI_LOCALIZE AND NOT DI_SANITIZE)
    set(whole ${CMAKE_BINARY_DIR}/deepinfer.o)
    add_custom_command(OUTPUT ${whole}
        COMMAND ${CMAKE_LINKER} -r -o ${whole} ${di_library_objects} ${di_cuda_runtime}
        # By name and not by visibility: gcc 12 gives the resolver of a function with target_clones default visibility.
        COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=di_* ${whole}
        DEPENDS ${di_library_targets} ${di_library_objects}
        COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking deepinfer.o, only di_ symbols visible")
    add_library(deepinfer_static STATIC ${whole})
else()
    add_library(deepinfer_static STATIC ${di_library_objects})
    target_link_libraries(deepinfer_static PRIVATE ${di_cuda_libraries})
endif()
set_target_properties(deepinfer_static PROPERTIES OUTPUT_NAME deepinfer LINKER_LANGUAGE C EXPORT_NAME static)
target_include_directories(deepinfer_static PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(deepinfer_static PRIVATE di_deps)

if(DI_SHARED)
    add_library(deepinfer_shared SHARED ${di_library_objects})
    set_target_properties(deepinfer_shared PROPERTIES OUTPUT_NAME deepinfer EXPORT_NAME shared LINKER_LANGUAGE C
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    target_include_directories(deepinfer_shared PUBLIC
        $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(deepinfer_shared PRIVATE di_flags di_deps ${di_cuda_libraries})
    target_link_options(deepinfer_shared PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map)
    set_target_properties(deepinfer_shared PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exports.map)
endif()

# Everything of the command but main.c is an object library too, so that tests/tools/ can link it.
file(GLOB di_tool_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/*.c ${CMAKE_SOURCE_DIR}/tools/*/*.c)
list(FILTER di_tool_files EXCLUDE REGEX "/tools/main\\.c$")
if(EXISTS ${CMAKE_SOURCE_DIR}/tools/main.c AND (NOT DI_ROOMS OR "tools" IN_LIST DI_ROOMS))
    # `deepinfer bench` divides by the same ceilings as the benches.
    add_library(di_tools OBJECT ${di_tool_files} ${CMAKE_SOURCE_DIR}/bench/ceiling.c)
    target_include_directories(di_tools PUBLIC ${CMAKE_SOURCE_DIR}/tools PRIVATE ${CMAKE_SOURCE_DIR}/bench)
    target_link_libraries(di_tools PRIVATE di_kernel_flags)
    target_link_libraries(di_tools PUBLIC di_flags PkgConfig::LIBEDIT PkgConfig::YAML)
    # Who links the command's files gets those of the rooms that they use.
    foreach(room ${di_program_rooms})
        if(TARGET di_${room})
            target_sources(di_tools INTERFACE $<TARGET_OBJECTS:di_${room}>)
            target_link_libraries(di_tools INTERFACE ${di_${room}_deps})
        endif()
    endforeach()
    add_executable(deepinfer_cli ${CMAKE_SOURCE_DIR}/tools/main.c)
    set_target_properties(deepinfer_cli PROPERTIES OUTPUT_NAME deepinfer)
    target_link_libraries(deepinfer_cli PRIVATE di_tools di_flags)
    if(DI_LOCALIZE AND NOT DI_SANITIZE)
        # core once more, because libdeepinfer.a hides its own copy; all but base.c, whose functions are public.
        add_library(deepinfer_core STATIC $<FILTER:$<TARGET_OBJECTS:di_core>,EXCLUDE,/base\\.c>)
        target_link_libraries(deepinfer_cli PRIVATE deepinfer_static deepinfer_core di_deps)
    else()
        target_link_libraries(deepinfer_cli PRIVATE deepinfer_int)
    endif()
endif()
