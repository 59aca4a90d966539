# Install: headers, shared library, CMake package, pkg-config file, command, man page.
include(CMakePackageConfigHelpers)
install(TARGETS llmspeed EXPORT llmspeedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/llmspeed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT llmspeedTargets NAMESPACE llmspeed:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/llmspeed)
configure_package_config_file(cmake/llmspeedConfig.cmake.in ${PROJECT_BINARY_DIR}/llmspeedConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/llmspeed)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/llmspeedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/llmspeedConfig.cmake ${PROJECT_BINARY_DIR}/llmspeedConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/llmspeed)
# Relative to the .pc file, so that `cmake --install --prefix` and moved trees work.
file(RELATIVE_PATH LLS_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" LLS_PC_TO_PREFIX ${LLS_PC_TO_PREFIX})
configure_file(cmake/llmspeed.pc.in ${PROJECT_BINARY_DIR}/llmspeed.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/llmspeed.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
