#include "backends/tensorrt/plan_cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <regex>
#include <system_error>
#include <tuple>
#include <vector>

#include "bundle/cache_folder.hpp"
#include "bundle/fields.hpp"
#include "bundle/files.hpp"
#include "failure.hpp"

namespace anoco {
namespace fs = std::filesystem;
namespace {

constexpr char kAgain[] = "build it again with: anoco-edge build BUNDLE --force";
constexpr size_t kLargestRecord = size_t{1} << 20;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  fail(ANOCO_BAD_BUNDLE, path.string() + " " + why + ": " + kAgain);
}

// Checks that nobody but this user, or root, can have written the file.
void check_owner(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    refuse(path, "cannot be read (" + std::generic_category().message(errno) + ")");
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    refuse(path, "belongs to another user, and a plan is executable code");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    refuse(path, "can be written by others, and a plan is executable code");
}

// Returns the largest batch: the largest first dimension in the last of the three shapes of each
// input.
int64_t max_batch(const Field& profile) {
  const auto* inputs = profile.json().as<Json::Object>();
  if (inputs == nullptr || inputs->empty()) profile.refuse("there are no shapes");
  int64_t most = 0;
  for (const auto& [name, shapes] : *inputs) {
    const std::vector<Field> three = profile.at(name, shapes).items(3);
    const std::vector<Field> largest = three[2].items();
    if (largest.empty()) three[2].refuse("the shape is empty");
    most = std::max(most, largest[0].integer(1));
  }
  return most;
}

struct CacheEntry {
  PlanRecord plan;
  std::string key, runtime, graph;
  PlanFingerprint made_for;
  bool for_targets = false;
};

CacheEntry parse_record(const fs::path& path) {
  const Bytes bytes = read_small_file(path, kLargestRecord);
  const std::string name = path.string();
  const Json document = parse_json(view(bytes), name);
  Members members{Field(document, name)};
  CacheEntry entry;
  entry.key = members.need("key").sha256();
  members.need("name").text();
  entry.runtime = members.need("flavour").text();
  entry.graph = members.need("graph").text();
  Members made_for(members.need("fingerprint"));
  entry.made_for = {made_for.need("version").text(), made_for.need("gpu").text(),
                    made_for.need("capability").text(), made_for.need("driver").text()};
  made_for.finish();
  entry.for_targets = !members.need("targets").items().empty();
  entry.plan.max_batch = max_batch(members.need("profile"));
  entry.plan.sha256 = members.need("sha256").sha256();
  entry.plan.size = members.need("size").integer(0);
  entry.plan.built = members.need("built").text();
  members.need("seconds").number();
  members.need("peak_memory_mb").number();
  members.finish();
  entry.plan.path =
      path.parent_path() / (entry.key + "-" + entry.plan.sha256.substr(0, 16) + ".plan");
  if (entry.key != path.stem().string()) refuse(path, "has another key than its name");
  return entry;
}

// Ignores a file that is not a record, but refuses one that others could have written.
std::optional<CacheEntry> read_record(const fs::path& path) {
  check_owner(path);
  try {
    CacheEntry entry = parse_record(path);
    std::error_code ignored;
    if (fs::is_regular_file(entry.plan.path, ignored)) return entry;
  } catch (const Failure&) {
  }
  return std::nullopt;
}

bool fits(const CacheEntry& entry, const std::string& graph, const PlanFingerprint& this_device,
          const std::string& full_version) {
  const PlanFingerprint& made_for = entry.made_for;
  return entry.runtime == "tensorrt" && !entry.for_targets && entry.graph == graph &&
         (made_for.version == this_device.version || made_for.version == full_version) &&
         std::tie(made_for.gpu, made_for.capability, made_for.driver) ==
             std::tie(this_device.gpu, this_device.capability, this_device.driver);
}

std::vector<fs::path> records_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") found.push_back(entry.path());
  if (error && error != std::errc::no_such_file_or_directory)
    refuse(folder, "cannot be read (" + error.message() + ")");
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

fs::path plans_folder() { return cache_folder() / "plans"; }

std::string kernel_driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::smatch found;
  static const std::regex number(R"(\b\d{3,}\.\d+(\.\d+)?\b)");
  return std::regex_search(text, found, number) ? found.str() : "";
}

std::optional<PlanRecord> find_plan(const fs::path& folder, const std::string& graph,
                                    const PlanFingerprint& this_device,
                                    const std::string& full_version) {
  const std::vector<fs::path> records = records_in(folder);
  if (!records.empty()) check_owner(folder);
  std::optional<PlanRecord> best;
  for (const fs::path& path : records) {
    const std::optional<CacheEntry> entry = read_record(path);
    if (!entry || !fits(*entry, graph, this_device, full_version)) continue;
    const PlanRecord& plan = entry->plan;
    const bool better = !best || plan.max_batch < best->max_batch ||
                        (plan.max_batch == best->max_batch && plan.built > best->built);
    if (better) best = plan;
  }
  return best;
}

Bytes read_plan(const PlanRecord& record) {
  check_owner(record.path.parent_path());
  check_owner(record.path);
  try {
    std::error_code unknown;
    if (int64_t(fs::file_size(record.path, unknown)) == record.size && !unknown)
      return read_hashed_file(record.path, record.size, record.sha256);
  } catch (const Failure&) {
  }
  refuse(record.path, "is not the plan that was built here, its checksum differs");
}

}  // namespace anoco
