// Reading files: what the system does not hand over is a bundle that cannot be used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "bundle/bytes.hpp"

namespace anoco {

// A small file whole; one over `most` bytes is refused.
Bytes read_small_file(const std::filesystem::path& path, size_t most);

// A file of this size, read and hashed in one go; another hash is refused (ANOCO_BAD_BUNDLE).
Bytes read_hashed_file(const std::filesystem::path& path, int64_t size, const std::string& sha256);

// The same for one that need not be in memory.
void check_file_hash(const std::filesystem::path& path, const std::string& sha256);

}  // namespace anoco
