# One version for the Python package and the library: that of anoco_edge/__init__.py.
set(version_file ${CMAKE_CURRENT_SOURCE_DIR}/../anoco_edge/__init__.py)
file(STRINGS ${version_file} ANOCO_VERSION REGEX "^__version__ = ")
if(NOT ANOCO_VERSION MATCHES "^__version__ = \"([0-9]+\\.[0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "${version_file} has no line such as: __version__ = \"1.2.3\"")
endif()
set(ANOCO_VERSION ${CMAKE_MATCH_1})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${version_file})
