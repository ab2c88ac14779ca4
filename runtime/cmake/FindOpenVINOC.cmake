# The headers of OpenVINO's C interface; the library itself is loaded at run time. Sets
#   OPENVINO_C_INCLUDE_DIR   the folder that holds openvino/c/openvino.h, or nothing
#   OPENVINO_C_SONAME        what the library of that version is called
# Looked for in ANOCO_OPENVINO_INCLUDE, else beside OpenVINO_DIR, in the Python package openvino
# (its wheel brings them), in the system.
set(ANOCO_OPENVINO_INCLUDE "" CACHE STRING
  "Folder that holds openvino/c/openvino.h; OFF: build without OpenVINO")

# The package in the Python that runs this build, else the first on the PATH. It is found without
# importing it, which would take seconds.
function(anoco_find_openvino_package out)
  find_program(on_path NAMES python3 python NO_CACHE)
  set(pythons ${Python_EXECUTABLE} ${Python3_EXECUTABLE} ${on_path})
  list(GET pythons 0 python)
  execute_process(
    COMMAND "${python}" -c "from importlib.util import find_spec
print(find_spec('openvino').submodule_search_locations[0])"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

unset(OPENVINO_C_INCLUDE_DIR)
if(ANOCO_OPENVINO_INCLUDE STREQUAL "")
  set(candidates)
  foreach(folder IN ITEMS "${OpenVINO_DIR}" "$ENV{OpenVINO_DIR}")
    if(folder) # a wheel's, an archive's, or a system's cmake/
      list(APPEND candidates "${folder}/../include" "${folder}/../../../include"
                             "${folder}/../../../../include")
    endif()
  endforeach()
  anoco_find_openvino_package(package)
  list(APPEND candidates "${package}/include" /usr/include /usr/local/include)
  foreach(folder IN LISTS candidates)
    if(EXISTS "${folder}/openvino/c/openvino.h")
      get_filename_component(OPENVINO_C_INCLUDE_DIR "${folder}" ABSOLUTE)
      break()
    endif()
  endforeach()
elseif(ANOCO_OPENVINO_INCLUDE)
  if(NOT EXISTS "${ANOCO_OPENVINO_INCLUDE}/openvino/c/openvino.h")
    message(FATAL_ERROR "ANOCO_OPENVINO_INCLUDE is ${ANOCO_OPENVINO_INCLUDE}, where there is no "
                        "openvino/c/openvino.h")
  endif()
  set(OPENVINO_C_INCLUDE_DIR "${ANOCO_OPENVINO_INCLUDE}")
endif()

# 2026.4.1 has libopenvino_c.so.2641.
set(OPENVINO_C_SONAME libopenvino_c.so)
set(version_header "${OPENVINO_C_INCLUDE_DIR}/openvino/core/version.hpp")
if(OPENVINO_C_INCLUDE_DIR AND EXISTS "${version_header}")
  file(STRINGS "${version_header}" version REGEX "define OPENVINO_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]" "" version "${version}")
  string(REGEX REPLACE "^20" "" version "${version}")
  string(APPEND OPENVINO_C_SONAME ".${version}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenVINOC REQUIRED_VARS OPENVINO_C_INCLUDE_DIR)
