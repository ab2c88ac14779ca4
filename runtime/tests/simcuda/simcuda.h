/* simcuda.h - what tests ask of the simulated driver, libsimcuda, besides what CUDA has.
 *
 * It is the driver and cuBLAS calls that this project makes, on the memory of the host. It is lazy
 * where a device may be: work waits until somebody waits for it. It is strict where a device is
 * not: memory of the device cannot be touched by the host, nor page-locked memory that a copy under
 * way uses; every pointer, size, handle and rule of capturing is checked. What a program may not do
 * ends it with one line on stderr. Kernels are run by the emulation in ../simt.
 *
 * Environment, read once: SIMCUDA_DEVICES (1), SIMCUDA_CAPABILITY (87), SIMCUDA_DRIVER_VERSION
 * (12060), SIMCUDA_MEMORY (bytes of a device), SIMCUDA_FAIL ("NAME:COUNT" or "NAME:COUNT:CODE", see
 * simcuda_fail), SIMCUDA_LOSE (COUNT, see simcuda_lose), SIMCUDA_LEAKS ("report": says at exit what
 * was not given back; "fail": and ends with status 70).
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Its presence tells it from a real driver. */
extern const int anoco_simulated_driver;

/* Fails the COUNT-th call from now on of that name ("any": of all), once. `code` 0: a likely one.
 * Calls that give something back do so all the same. COUNT 0: no more. */
void simcuda_fail(const char* name, int64_t count, int code);

/* The name of the call that was made to fail since the last simcuda_fail, or NULL. */
const char* simcuda_failed(void);

/* From the COUNT-th call on the device is lost: everything fails until all of its users have given
 * it back. COUNT 0: no more. */
void simcuda_lose(int64_t count);

/* Calls that were made so far. */
int64_t simcuda_calls(void);

/* Whether this thread is inside one of its calls: what they allocate is no real driver's. */
int simcuda_inside(void);

/* Bytes that a device has. */
void simcuda_set_memory(uint64_t bytes);

typedef struct simcuda_numbers {
  uint64_t device_bytes, peak_device_bytes; /* live now; the most since simcuda_reset_peak */
  uint64_t host_bytes;                      /* page-locked */
  int64_t objects; /* live: memory, streams, events, graphs, modules, cuBLAS handles, contexts */
  int64_t launches, graph_launches; /* so far; kernels of a graph count too */
  int64_t pageable_copies;          /* so far: from or to memory that is not page-locked */
} simcuda_numbers;

void simcuda_count(simcuda_numbers* out);
void simcuda_reset_peak(void);

/* Calls work(user) in the order of a stream, as if it were a kernel: it may read and write the
 * memory of the device. Captured like one, too. 0, or a CUDA error. */
int simcuda_enqueue(void* stream, void (*work)(void*), void* user);

#ifdef __cplusplus
}
#endif

#endif
