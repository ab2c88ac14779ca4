// cuBLAS, which is looked for and loaded when it is first used.
//
// The files of a cuBLAS carry its major version, and CUDA 13's does not run on a driver of CUDA 12
// (JetPack 6). They come with CUDA, with JetPack, or with Python packages, whose folders no loader
// knows. So the versions that fit the driver are looked for, the newest first: by name, as the
// system's loader finds it, then in the folders that add_cublas_folders named, in Python packages
// beside this library, and in the folders of CUDA toolkits. The environment variable
// ANOCO_CUBLAS_LIBRARY replaces all of that: files or folders, separated by colons.
#pragma once

#include <string>
#include <vector>

#include "gpu/driver.hpp"

namespace anoco::gpu {

[[noreturn]] void fail_cublas_call(const char* name, int code);

struct Cublas {
#define ANOCO_MEMBER(name, ...) Call<fail_cublas_call, __VA_ARGS__> name{#name};
  ANOCO_CUBLAS_CALLS(ANOCO_MEMBER)
#undef ANOCO_MEMBER
  std::string file;
};

// Returns the cuBLAS that made the last handle, or the first that can be loaded. Fails with
// ANOCO_NO_BACKEND and says where it was looked for; the next call looks again.
const Cublas& cublas();

// Returns whether one can be loaded; the next call looks again.
bool has_cublas();

// Makes a handle in the current context. A cuBLAS that loads and cannot make one, because it does
// not fit the driver or the device, is passed over. Returns the one that made it.
const Cublas& create_cublas_handle(CublasHandle* handle);

// Adds folders to those that are searched, at their front. Used where it is loaded the next time.
void add_cublas_folders(const std::vector<std::string>& folders);

// Returns the names of the files that fit a driver, such as 13000, best first.
std::vector<std::string> cublas_names(int driver_version);

// Returns the folders of CUDA toolkits below a folder that hold a cuBLAS, in the order of their
// names from the last to the first.
std::vector<std::string> toolkit_folders(const std::string& below);

}  // namespace anoco::gpu
