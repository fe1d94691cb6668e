# `cmake --install build/release --prefix DIR`: command, libraries, public headers, demo model, pkg-config file, CMake package.
include(CMakePackageConfigHelpers)

file(GLOB di_public_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/deepinfer/*.h)
install(FILES ${di_public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/deepinfer)
install(TARGETS deepinfer_static ARCHIVE)
if(DI_SHARED)
    install(TARGETS deepinfer_shared LIBRARY)
endif()
if(TARGET deepinfer_cli)
    install(TARGETS deepinfer_cli RUNTIME)
endif()
if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/models/demo)
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/deepinfer)
endif()

list(JOIN di_pkg_modules " " di_pkg_modules_text)
set(di_private_libs_text "")
foreach(library ${di_private_libs})
    string(APPEND di_private_libs_text " -l${library}")
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/cmake/deepinfer.pc.in ${CMAKE_BINARY_DIR}/deepinfer.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/deepinfer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(di_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deepinfer)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/deepinfer-config.cmake.in
    ${CMAKE_BINARY_DIR}/deepinfer-config.cmake INSTALL_DESTINATION ${di_package_dir}
    PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/deepinfer-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/deepinfer-config.cmake ${CMAKE_BINARY_DIR}/deepinfer-config-version.cmake
    DESTINATION ${di_package_dir})
