# One version for the Python package and the library: pyproject.toml's.
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/../pyproject.toml ANOCO_VERSION REGEX "^version = ")
if(NOT ANOCO_VERSION MATCHES "^version = \"([0-9]+\\.[0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "../pyproject.toml has no line such as: version = \"1.2.3\"")
endif()
set(ANOCO_VERSION ${CMAKE_MATCH_1})
set_property(DIRECTORY APPEND PROPERTY
  CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/../pyproject.toml)
