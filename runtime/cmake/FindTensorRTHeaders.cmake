# The headers of TensorRT and of the CUDA runtime, which they include; neither is linked. Sets
#   TENSORRT_INCLUDE_DIR        the folder that holds NvInfer.h, or nothing
#   CUDA_RUNTIME_INCLUDE_DIR    the folder that holds cuda_runtime_api.h
# Looked for in ANOCO_TENSORRT_INCLUDE and ANOCO_CUDA_INCLUDE, else where JetPack, NVIDIA's packages
# and pip's nvidia-cuda-runtime and nvidia-cuda-crt put them.
set(ANOCO_TENSORRT_INCLUDE "" CACHE STRING
  "Folder that holds NvInfer.h (10.x or 11.x); OFF: build without TensorRT")
set(ANOCO_CUDA_INCLUDE "" CACHE STRING "Folder that holds cuda_runtime_api.h, for TensorRT")

function(anoco_first_with out header)
  foreach(folder IN LISTS ARGN)
    if(folder AND EXISTS "${folder}/${header}")
      get_filename_component(folder "${folder}" ABSOLUTE)
      set(${out} "${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  unset(${out} PARENT_SCOPE)
endfunction()

unset(TENSORRT_INCLUDE_DIR)
unset(CUDA_RUNTIME_INCLUDE_DIR)
if(ANOCO_TENSORRT_INCLUDE OR ANOCO_TENSORRT_INCLUDE STREQUAL "")
  set(places "${ANOCO_TENSORRT_INCLUDE}")
  if(ANOCO_TENSORRT_INCLUDE STREQUAL "" AND NOT CMAKE_CROSSCOMPILING)
    set(places "$ENV{TENSORRT_ROOT}/include" "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}"
      /usr/include /usr/local/include)
  endif()
  anoco_first_with(TENSORRT_INCLUDE_DIR NvInfer.h ${places})
  if(ANOCO_TENSORRT_INCLUDE AND NOT TENSORRT_INCLUDE_DIR)
    message(FATAL_ERROR "ANOCO_TENSORRT_INCLUDE is ${ANOCO_TENSORRT_INCLUDE}, where there is no "
                        "NvInfer.h")
  endif()
endif()

if(TENSORRT_INCLUDE_DIR)
  set(places "${ANOCO_CUDA_INCLUDE}" "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
  find_program(on_path NAMES python3 python NO_CACHE)
  execute_process(
    COMMAND "${on_path}" -c "from importlib.util import find_spec
print(find_spec('nvidia').submodule_search_locations[0])"
    OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(GLOB wheels "${package}/cu1*/include" "${package}/cuda_runtime/include")
  # pip's packages bring the runtime's headers and, apart, those that they include.
  anoco_first_with(CUDA_RUNTIME_INCLUDE_DIR crt/host_defines.h ${places} ${wheels})
  file(STRINGS "${TENSORRT_INCLUDE_DIR}/NvInferVersion.h" TENSORRT_MAJOR
    REGEX "define (NV_TENSORRT_MAJOR|TRT_MAJOR_ENTERPRISE) +[0-9]+")
  string(REGEX REPLACE ".* ([0-9]+).*" "\\1" TENSORRT_MAJOR "${TENSORRT_MAJOR}")
  if(TENSORRT_MAJOR LESS 10)
    message(STATUS "TensorRT ${TENSORRT_MAJOR} is too old: its backend needs 10 or newer")
    unset(TENSORRT_INCLUDE_DIR)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TensorRTHeaders
  REQUIRED_VARS TENSORRT_INCLUDE_DIR CUDA_RUNTIME_INCLUDE_DIR)
