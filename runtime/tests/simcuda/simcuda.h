/* simcuda.h - what the simulated driver, libsimcuda, offers to tests in addition to CUDA's
 * calls.
 *
 * It implements the driver and cuBLAS calls that this project makes, in the memory of the host.
 * It is lazy where a device may be: work does not run until somebody waits for it. It is strict
 * where a device is not: the host cannot touch memory of the device, nor page-locked memory that
 * a pending copy uses; every pointer, size and handle is checked. A program that breaks a rule is
 * ended with one line on stderr. Kernels are run by the emulation in ../simt, or with ANOCO_SIM=ptx
 * by the interpreter in ../ptx, from the file that ANOCO_PTX names.
 *
 * Captures are as fragile as CUDA allows: a call that synchronizes the device, or may do so,
 * invalidates all that are open in its context. These calls take or free memory (page-locked and
 * of executable graphs too), load or unload a module, make or destroy a cuBLAS handle, multiply in
 * a shape that is new to the context (cuBLAS then loads a kernel), or wait for the context. Calls
 * of a capture that is invalid, and its end, return 901; the thread that captures gets 900 from
 * these calls and from calls that wait.
 *
 * Environment, read once: SIMCUDA_DEVICES (1), SIMCUDA_CAPABILITY (87), SIMCUDA_DRIVER_VERSION
 * (12060), SIMCUDA_MEMORY (bytes of a device), SIMCUDA_FAIL ("NAME:COUNT" or "NAME:COUNT:CODE",
 * see simcuda_fail), SIMCUDA_LOSE (COUNT, see simcuda_lose), SIMCUDA_LEAKS ("report": says at
 * exit what was not given back; "fail": and ends with status 70), SIMCUDA_CAPTURE_PAUSE
 * (microseconds that a thread waits in every call that it makes while it captures). */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This function exists only here, so its presence shows that the driver is not a real one. */
extern const int anoco_simulated_driver;

/* Makes the COUNT-th call of that name from now on ("any": of all names) fail once; COUNT -1: every
 * call. With `code` 0 the error is a likely one; 900 and 901 invalidate the capture of the calling
 * thread. Calls that free something do so nevertheless. COUNT 0 switches it off. */
void simcuda_fail(const char* name, int64_t count, int code);

/* Returns the name of the call that was made to fail since the last simcuda_fail, or NULL. */
const char* simcuda_failed(void);

/* Tells whether that call belonged to a capture, from its begin to the instantiated graph. */
int simcuda_failed_in_capture(void);

typedef struct simcuda_capture_numbers {
  int64_t begun;         /* so far */
  int64_t broken;        /* by calls of other threads */
  const char* broken_by; /* the last of these calls; NULL: none */
} simcuda_capture_numbers;

void simcuda_captures(simcuda_capture_numbers* out);

/* Loses the device from the COUNT-th call on: everything fails until all of its users have
 * released it. COUNT 0 switches it off. */
void simcuda_lose(int64_t count);

/* Lets a kernel compute something wrong from now on: the fourth byte of what its last pointer leads
 * to. "" ends that. */
void simcuda_spoil(const char* kernel);

/* Returns the number of calls so far. */
int64_t simcuda_calls(void);

/* Tells whether this thread is inside one of its calls, whose allocations a real driver would
   not make. */
int simcuda_inside(void);

/* Returns the memory of a device in bytes. */
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
 * memory of the device, and it is captured like a kernel. Returns 0 or a CUDA error. */
int simcuda_enqueue(void* stream, void (*work)(void*), void* user);

#ifdef __cplusplus
}
#endif

#endif
