# Compiles the kernels of cuda/ for devices. Sets ANOCO_DEVICE_CODE, the C++ file that holds the
# code, which cuda/compile.py makes if this build's Python, or nvcc's toolkit, has a CUDA compiler.
# Compiling takes ten seconds the first time; the user's cache keeps the results.
set(ANOCO_CUDA ON CACHE BOOL "Embed code for CUDA devices where there is a compiler for it")
set(ANOCO_DEVICE_CODE cuda/unavailable.cpp)

find_program(python_on_path NAMES python3 python NO_CACHE)
set(pythons ${Python_EXECUTABLE} ${Python3_EXECUTABLE} ${python_on_path})
if(ANOCO_CUDA AND pythons)
  list(GET pythons 0 python)
  set(kernels ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
  execute_process(COMMAND "${python}" ${kernels}/compile.py --list
    OUTPUT_VARIABLE compilers OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_VARIABLE why ERROR_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
endif()
if(NOT ANOCO_CUDA)
  message(STATUS "CUDA: off (ANOCO_CUDA)")
elseif(NOT pythons)
  message(STATUS "CUDA: built without, no Python to compile kernels with")
elseif(failed)
  message(STATUS "CUDA: built without, ${why}")
else()
  message(STATUS "CUDA: ${compilers}")
  set(ANOCO_DEVICE_CODE ${CMAKE_CURRENT_BINARY_DIR}/device_code/device_code.cpp)
  file(GLOB kernel_files CONFIGURE_DEPENDS ${kernels}/*.cu ${kernels}/*.cuh ${kernels}/*.h
       ${kernels}/*.py)
  add_custom_command(OUTPUT ${ANOCO_DEVICE_CODE}
    COMMAND "${python}" ${kernels}/compile.py --out ${CMAKE_CURRENT_BINARY_DIR}/device_code
    DEPENDS ${kernel_files} VERBATIM
    COMMENT "Compiling CUDA kernels (${compilers})")
endif()
