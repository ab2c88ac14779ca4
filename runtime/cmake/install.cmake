# Installs the library. `cmake --install BUILD` has the components
#   runtime   libanoco_edge.so.N, what a device needs
#   devel     headers, the name to link against, find_package(anoco_edge), pkg-config
# and a wheel asks for
#   python    the library as anoco_edge/_lib/libanoco_edge.so.N
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS anoco_edge EXPORT anoco_edge
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT devel
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT devel
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

# find_package(anoco_edge): the target anoco_edge::anoco_edge
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/anoco_edge)
set(generated ${CMAKE_CURRENT_BINARY_DIR}/package)
install(EXPORT anoco_edge NAMESPACE anoco_edge:: FILE anoco_edgeTargets.cmake
  DESTINATION ${package} COMPONENT devel)
configure_package_config_file(cmake/anoco_edgeConfig.cmake.in ${generated}/anoco_edgeConfig.cmake
  INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
# Versions with the same soname only add to the interface.
write_basic_package_version_file(${generated}/anoco_edgeConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${generated}/anoco_edgeConfig.cmake ${generated}/anoco_edgeConfigVersion.cmake
  DESTINATION ${package} COMPONENT devel)

# pkg-config: paths are relative to the file, so that the installed tree can be moved.
set(folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH to_prefix ${folder} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH to_include ${folder} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/anoco_edge.pc.in ${generated}/anoco_edge.pc @ONLY)
install(FILES ${generated}/anoco_edge.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT devel)

# Wheels cannot contain links, so the file is named by its soname.
install(FILES $<TARGET_FILE:anoco_edge> RENAME libanoco_edge.so.${ANOCO_ABI}
  DESTINATION anoco_edge/_lib COMPONENT python EXCLUDE_FROM_ALL)
