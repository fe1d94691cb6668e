# examples/<x>.c is a program over the public API alone, linked as a user would link it: build/<preset>/examples/<x>.
if(NOT DI_ROOMS AND NOT DI_SANITIZE)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.c)
    foreach(file ${files})
        get_filename_component(stem ${file} NAME_WE)
        add_executable(example_${stem} ${file})
        target_link_libraries(example_${stem} PRIVATE deepinfer_static di_deps m)
        target_compile_options(example_${stem} PRIVATE -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${DI_WERROR}>:-Werror>)
        set_target_properties(example_${stem} PROPERTIES OUTPUT_NAME ${stem} C_STANDARD 17
            RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
    endforeach()
endif()
