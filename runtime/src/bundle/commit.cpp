#include "bundle/commit.hpp"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>

#include "bundle/document_parts.hpp"
#include "bundle/documents.hpp"
#include "bundle/files.hpp"
#include "bundle/json.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

namespace fs = std::filesystem;

constexpr char kLock[] = ".lock", kCurrent[] = "product.json";
constexpr char kHistory[] = "history", kProducts[] = "products";
constexpr char kNotDurable[] =
    "the change is committed but may not survive a power cut: run sync, check the disk";

// ---- Errors. Inside this file they are of type std::system_error, as std::filesystem throws them.

const char* hint(int error) {
  switch (error) {
    case ENOSPC: return "the disk is full: free some space; nothing was changed";
    case EDQUOT: return "the quota is used up: free some space; nothing was changed";
    case EFBIG: return "a file may not grow that large here (ulimit -f); nothing was changed";
    case EROFS: return "the place is read-only: copy the bundle to where it can be written";
    case EACCES:
    case EPERM: return "no permission to write: copy the bundle to where it can be written";
    default: return "nothing was changed";
  }
}

[[noreturn]] void fail_to_write(const fs::path& what, const std::error_code& error,
                                const char* advice) {
  fail(ANOCO_STORAGE, "cannot write " + what.string() + ": " + error.message() + "; " + advice);
}

template <class Work>
auto writing(const fs::path& what, Work&& work) {
  try {
    return work();
  } catch (const std::system_error& error) {
    fail_to_write(what, error.code(), hint(error.code().value()));
  }
}

// ---- Files

Bytes read_text(const Directory& folder, const std::string& name) {
  return read_small_file(InputFile(folder.open_file(name), (folder.path() / name).string()),
                         kMostText);
}

bool is_current(const Directory& folder, std::string_view document) {
  return folder.exists(kCurrent) && view(read_text(folder, kCurrent)) == document;
}

std::string history_path(int64_t generation) {
  return std::string(kHistory) + "/product-" + std::to_string(generation) + ".json";
}

bool is_history(const std::string& name) { return name.rfind("history/", 0) == 0; }

bool is_temporary(const std::string& name) {
  return fs::path(name).filename().string().rfind(kTemporary, 0) == 0;
}

// Tells whether a commit gives such names: pictures and masks are named by their hash, other files
// by their generation.
bool is_written(const std::string& name) {
  static const std::regex written(
      R"(history/product-[0-9]+\.json|(bank|baseline)-[0-9]+\.safetensors)"
      R"(|(references|calibration)/[0-9a-f]{16}(\.[^/]*)?|mask-[0-9a-f]{16}\.png)");
  return std::regex_match(name, written);
}

// Returns the number between `before` and `after`, or 0 for a file that is not ours.
int64_t number_in(std::string_view name, std::string_view before, std::string_view after) {
  constexpr size_t kMostDigits = 18;
  if (name.size() <= before.size() + after.size() || name.substr(0, before.size()) != before ||
      name.substr(name.size() - after.size()) != after)
    return 0;
  name.remove_prefix(before.size());
  name.remove_suffix(after.size());
  if (name.size() > kMostDigits || name.find_first_not_of("0123456789") != name.npos) return 0;
  return std::stoll(std::string(name));
}

// ---- What a killed process left

// Collects every "path" of a document, each of which names a file.
void add_paths(const Json& value, std::set<std::string>& paths) {
  if (const auto* items = value.as<Json::Array>())
    for (const Json& item : *items) add_paths(item, paths);
  if (const auto* members = value.as<Json::Object>())
    for (const auto& [key, member] : *members) {
      const auto* text = member.as<std::string>();
      if (key == "path" && text != nullptr) paths.insert(*text);
      add_paths(member, paths);
    }
}

// Returns the files that any generation relies on, and the generations themselves.
std::set<std::string> named_by_any(const Directory& folder, const std::vector<std::string>& files) {
  std::set<std::string> named;
  for (const std::string& name : files) {
    if (name != kCurrent && number_in(name, "history/product-", ".json") == 0) continue;
    const Bytes text = read_text(folder, name);
    check_checksum(view(text), name);
    add_paths(parse_json(view(text), name), named);
    named.insert(name);
  }
  return named;
}

// Removes half-written files, and files that no generation names; nobody else writes while the lock
// is held. If a generation is damaged it is unknown what it names, so only half-written files are
// removed.
void sweep(const Directory& folder) {
  const std::vector<std::string> files = folder.files();
  std::set<std::string> named(files.begin(), files.end());
  try {
    named = named_by_any(folder, files);
  } catch (const Failure&) {
  }
  for (const std::string& name : files)
    if (is_temporary(name) || (is_written(name) && named.count(name) == 0)) folder.remove(name);
}

// ---- The commit

struct Content {
  std::string name;
  std::string_view data;
};

// Writes files; when it returns, the files and their names are on the disk.
void put(const Directory& folder, const std::vector<Content>& contents) {
  std::set<std::string> above;
  for (const Content& content : contents) {
    folder.put(content.name, content.data);
    above.insert(fs::path(content.name).parent_path().string());
  }
  for (const std::string& name : above)
    if (!name.empty()) folder.folder(name).sync();
  if (!contents.empty()) folder.sync();
}

// Removes history files first, so that no generation is listed whose files are gone.
void take_away(const Directory& folder, const std::vector<std::string>& names) {
  bool listed = false;
  for (const std::string& name : names)
    if (is_history(name)) {
      folder.remove(name);
      listed = true;
    }
  if (listed && folder.holds_folder(kHistory)) folder.folder(kHistory).sync();
  for (const std::string& name : names)
    if (!is_history(name)) folder.remove(name);
}

void try_to_take_away(const Directory& folder, const std::vector<std::string>& names) {
  try {
    take_away(folder, names);
  } catch (const std::system_error&) {  // what stays is swept by the next change
  }
}

// The folder of a product, and the two folders above it.
struct ProductFolders {
  explicit ProductFolders(const ProductPlace& place)
      : bundle(Directory::open(place.bundle)),
        products(bundle.make_folder(kProducts)),
        folder(products.make_folder(place.product)) {}

  Directory bundle, products, folder;
};

// Writes everything up to the rename, or leaves nothing behind.
void write_until_current(const ProductFolders& folders, const std::vector<Content>& files,
                         const std::vector<Content>& history, std::string_view document) {
  const Directory& folder = folders.folder;
  std::vector<std::string> fresh;
  for (const std::vector<Content>* contents : {&history, &files})
    for (const Content& content : *contents)
      if (!folder.exists(content.name)) fresh.push_back(content.name);
  try {
    put(folder, files);
    if (history.empty()) {  // the first generation: the folder itself may be new
      folders.products.sync();
      folders.bundle.sync();
    }
    put(folder, history);
    folder.put(kCurrent, document);
  } catch (...) {
    // The rename may have happened before the failure; then the change is committed.
    if (!is_current(folder, document)) try_to_take_away(folder, fresh);
    throw;
  }
}

void write_generation(const ProductFolders& folders, const Generation& generation) {
  const Directory& folder = folders.folder;
  const std::vector<Content> own{{history_path(generation.number), generation.document}};
  std::vector<Content> files, history;
  Bytes before;
  for (const NewFile& file : generation.files) files.push_back({file.path, view(file.content)});
  if (generation.parent) {
    const std::string parent = history_path(*generation.parent);
    if (!folder.exists(parent)) {  // a kill right after the very first commit
      before = read_text(folder, kCurrent);
      history.push_back({parent, view(before)});
    }
    history.push_back(own[0]);
  }
  sweep(folder);
  write_until_current(folders, files, history, generation.document);
  folder.sync();
  // The first generation writes its history last, so that history without a product.json shows that
  // product.json was lost.
  if (!generation.parent) put(folder, own);
}

}  // namespace

ProductLock::ProductLock(const ProductPlace& place, double seconds)
    : handle_(
          writing(place.folder(), [&] { return ProductFolders(place).folder.open_lock(kLock); })) {
  using Clock = std::chrono::steady_clock;
  const std::string folder = place.folder().string();
  const Clock::time_point start = Clock::now();
  while (flock(handle_.number(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    const bool held = error == EWOULDBLOCK;
    if (held && std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    if (held)
      fail(ANOCO_STORAGE, "another process is changing " + folder + "; try again when it is done");
    // Some network file systems do not support locks.
    fail(ANOCO_STORAGE, "cannot lock " + folder + ": " + std::system_category().message(error) +
                            "; copy the bundle to a local disk to change it");
  }
}

int64_t next_generation(const ProductPlace& place) {
  // A kill between writing the bank and the history leaves a bank without its history file, so both
  // are counted.
  return 1 + writing(place.folder(), [&] {
           int64_t largest = 0;
           for (const std::string& name : ProductFolders(place).folder.files())
             largest = std::max({largest, number_in(name, "bank-", ".safetensors"),
                                 number_in(name, "history/product-", ".json")});
           return largest;
         });
}

void commit(const ProductPlace& place, const Generation& generation) {
  const ProductFolders folders = writing(place.folder(), [&] { return ProductFolders(place); });
  try {
    write_generation(folders, generation);
  } catch (const std::system_error& error) {
    const bool done = is_current(folders.folder, generation.document);
    fail_to_write(place.folder(), error.code(), done ? kNotDurable : hint(error.code().value()));
  }
}

}  // namespace anoco
