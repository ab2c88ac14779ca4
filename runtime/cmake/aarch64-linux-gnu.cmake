# Builds for aarch64 with Debian's cross compiler (g++-aarch64-linux-gnu); tests run under
# qemu-user-static where it is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(ANOCO_AARCH64_ROOT /usr/aarch64-linux-gnu CACHE PATH "The cross compiler's C library")
set(CMAKE_FIND_ROOT_PATH ${ANOCO_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(ANOCO_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(ANOCO_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${ANOCO_QEMU} -L ${ANOCO_AARCH64_ROOT})
endif()
