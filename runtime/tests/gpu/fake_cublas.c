/* A cuBLAS of a version that does not fit the driver: it loads, and cannot make a handle. */
#include <stddef.h>

enum { NOT_INITIALIZED = 1, NOT_SUPPORTED = 15 };

int cublasCreate_v2(void** handle) {
  (void)handle;
  return NOT_INITIALIZED;
}

int cublasGetProperty(int part, int* value) {
  *value = part == 0 ? 99 : 0;
  return 0;
}

/* Nothing calls these without a handle. */
int cublasDestroy_v2(void) { return NOT_SUPPORTED; }
int cublasSetStream_v2(void) { return NOT_SUPPORTED; }
int cublasSetWorkspace_v2(void) { return NOT_SUPPORTED; }
int cublasSetMathMode(void) { return NOT_SUPPORTED; }
int cublasGemmEx(void) { return NOT_SUPPORTED; }
