// Writes generations: whatever fails, at whichever step, leaves the old state or the new one.
//
// The program defines renameat and fsync, which the library's code calls in place of the system's;
// they fail, or kill the process, on request.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "bundle/checksum.hpp"
#include "bundle/commit.hpp"
#include "bundle/json.hpp"
#include "failure.hpp"
#include "tests/check.h"

namespace fs = std::filesystem;
using anoco::Generation;

// ---- faults

enum class Fault { none, dies_before, dies_after, fails };

struct Plan {
  Fault fault = Fault::none;
  int at = 0;  // which call
  int calls = 0;
  bool now() { return calls++ == at && fault != Fault::none; }
};

static Plan renames, syncs;
static bool synced = false;    // a file, since the last rename
static bool careless = false;  // one was renamed without
static int folder_syncs = 0;

extern "C" int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  const bool now = renames.now();
  if (!synced) careless = true;
  synced = false;
  if (now && renames.fault == Fault::fails) {
    errno = ENOSPC;
    return -1;
  }
  if (now && renames.fault == Fault::dies_before) raise(SIGKILL);
  const int result = int(syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
  if (now && renames.fault == Fault::dies_after) raise(SIGKILL);
  return result;
}

extern "C" int fsync(int file) {
  if (syncs.now()) {
    errno = EIO;
    return -1;
  }
  struct stat found;
  CHECK(fstat(file, &found) == 0);
  if (S_ISREG(found.st_mode))
    synced = true;
  else
    ++folder_syncs;
  return fdatasync(file);
}

// ---- a product's folder

static std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

static std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != ".lock")
      files[fs::relative(entry.path(), folder)] = content(entry.path());
  return files;
}

static anoco::Bytes bytes(const std::string& text) { return {text.begin(), text.end()}; }

static Generation first() {
  return {1, {}, "one", {{"references/a.png", bytes("A")}, {"bank-1.safetensors", bytes("AA")}}};
}

static Generation second() {
  return {2, 1, "two", {{"references/b.png", bytes("B")}, {"bank-2.safetensors", bytes("AABB")}}};
}

static const std::map<std::string, std::string> kFirst{{"product.json", "one"},
                                                       {"history/product-1.json", "one"},
                                                       {"references/a.png", "A"},
                                                       {"bank-1.safetensors", "AA"}};
static const std::map<std::string, std::string> kSecond{
    {"product.json", "two"},           {"history/product-1.json", "one"},
    {"history/product-2.json", "two"}, {"references/a.png", "A"},
    {"bank-1.safetensors", "AA"},      {"references/b.png", "B"},
    {"bank-2.safetensors", "AABB"}};

// A folder as in a bundle, which is removed with the object.
class Place {
 public:
  Place() {
    char name[] = "/tmp/anoco-commit-XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    root_ = name;
    fs::create_directories(folder());
    renames = syncs = Plan{};
  }
  ~Place() { fs::remove_all(root_); }
  fs::path folder() const { return root_ / "products" / "part"; }
  anoco::ProductPlace part() const { return {root_, "part"}; }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

static void commit_locked(const anoco::ProductPlace& place, const Generation& generation) {
  const anoco::ProductLock lock(place, 0);
  anoco::commit(place, generation);
}

// Returns the text of the failure, or "" if there is none.
static std::string failure(const std::function<void()>& work, anoco_status status = ANOCO_STORAGE) {
  try {
    work();
    return "";
  } catch (const anoco::Failure& caught) {
    CHECK(caught.status == status);
    return caught.text;
  }
}

static bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// ---- tests

static void generations_follow_each_other() {
  const Place place;
  CHECK(anoco::next_generation(place.part()) == 1);
  commit_locked(place.part(), first());
  CHECK(snapshot(place.folder()) == kFirst);
  CHECK(anoco::next_generation(place.part()) == 2);
  commit_locked(place.part(), second());
  CHECK(snapshot(place.folder()) == kSecond);
}

static void everything_is_on_the_disk_before_it_counts() {
  const Place place;
  careless = false;
  folder_syncs = 0;
  commit_locked(place.part(), first());
  CHECK(!careless && renames.calls == 4);
  // The folders that may be new: references in part, products, the bundle; history in part. Then
  // what holds new files, before the commit and after it; and history, which comes last.
  CHECK(folder_syncs == 2 + 2 + 2 + 1 + 2);
}

static void numbers_are_never_used_twice() {
  const Place place;
  commit_locked(place.part(), first());
  std::ofstream(place.folder() / "bank-7.safetensors") << "of a kill before its history";
  std::ofstream(place.folder() / "bank-copy.safetensors") << "of somebody else";
  std::ofstream(place.folder() / "bank-9.safetensors.bak") << "of somebody else";
  std::ofstream(place.folder() / "history" / "product-12x.json") << "of somebody else";
  CHECK(anoco::next_generation(place.part()) == 8);
  std::ofstream(place.folder() / "history" / "product-11.json") << "undone";
  CHECK(anoco::next_generation(place.part()) == 12);
}

// Two files, history, product.json: the fourth rename is the commit.
static void a_kill_at_every_step_leaves_the_old_state_or_the_new_one() {
  for (const Fault fault : {Fault::dies_before, Fault::dies_after})
    for (int step = 0; step < 5; ++step) {
      const Place place;
      commit_locked(place.part(), first());
      const pid_t child = fork();
      if (child == 0) {
        renames = {fault, step, 0};
        commit_locked(place.part(), second());
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) == (step < 4));
      const bool committed = step > 3 || (step == 3 && fault == Fault::dies_after);
      const auto found = snapshot(place.folder());
      CHECK(found.at("product.json") == (committed ? "two" : "one"));
      for (const auto& [name, data] : committed ? kSecond : kFirst) CHECK(found.at(name) == data);
      // The next change removes what was left half-written.
      commit_locked(place.part(), second());
      CHECK(snapshot(place.folder()) == kSecond);
    }
}

static void a_kill_in_the_first_commit_never_leaves_history_alone() {
  for (const Fault fault : {Fault::dies_before, Fault::dies_after})
    for (int step = 0; step < 4; ++step) {
      const Place place;
      const pid_t child = fork();
      if (child == 0) {
        renames = {fault, step, 0};
        commit_locked(place.part(), first());
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      const auto found = snapshot(place.folder());
      CHECK(found.count("product.json") >= found.count("history/product-1.json"));
      if (found.count("product.json") == 0) continue;
      // The next generation writes the history of the first if it is missing.
      commit_locked(place.part(), second());
      CHECK(snapshot(place.folder()) == kSecond);
    }
}

static void a_full_disk_at_any_step_changes_nothing() {
  for (int step = 0; step < 4; ++step) {
    const Place place;
    commit_locked(place.part(), first());
    renames = {Fault::fails, step, 0};
    const std::string text = failure([&] { commit_locked(place.part(), second()); });
    CHECK(has(text, "cannot write ") && has(text, "No space left on device"));
    CHECK(has(text, "the disk is full: free some space; nothing was changed"));
    CHECK(snapshot(place.folder()) == kFirst);
  }
}

static void a_disk_that_fails_after_the_rename_loses_nothing() {
  bool kept = false, lost = false;
  for (int step = 0;; ++step) {
    const Place place;
    commit_locked(place.part(), first());
    syncs = {Fault::fails, step, 0};
    const std::string text = failure([&] { commit_locked(place.part(), second()); });
    if (text.empty()) break;
    const auto found = snapshot(place.folder());
    const bool committed = found.at("product.json") == "two";
    CHECK(found == (committed ? kSecond : kFirst));
    CHECK(has(text, "Input/output error; "));
    CHECK(has(text,
              committed ? "the change is committed but may not survive" : "nothing was changed"));
    (committed ? kept : lost) = true;
  }
  CHECK(kept && lost);
}

static std::string document(const std::string& bank) {
  return anoco::write_with_checksum(
      anoco::Json::Object{{"bank", anoco::Json::Object{{"path", bank}}}});
}

static void files_that_no_generation_names_are_swept() {
  const Place place;
  const std::string picture = "references/0123456789abcdef.png";
  const Generation one{1, {}, document("bank-1.safetensors"), {{"bank-1.safetensors", bytes("A")}}};
  const Generation five{5, 1, document("bank-5.safetensors"), {{"bank-5.safetensors", bytes("B")}}};
  commit_locked(place.part(), one);
  const auto before = snapshot(place.folder());
  fs::create_directories(place.folder() / "references");
  for (const char* name : {"bank-4.safetensors", "baseline-4.safetensors", picture.c_str(),
                           "mask-0123456789abcdef.png", "history/.tmp-product-4.json-9"})
    std::ofstream(place.folder() / name) << "of a kill";
  std::ofstream(place.folder() / "references" / "notes.txt") << "of somebody else";
  commit_locked(place.part(), five);
  const auto found = snapshot(place.folder());
  CHECK(found.size() == before.size() + 3);  // the bank, history, and somebody's notes
  CHECK(found.count("references/notes.txt") == 1 && found.count("bank-1.safetensors") == 1);
  // If a generation cannot be read, it is unknown which files it names.
  std::ofstream(place.folder() / "history" / "product-1.json") << "damaged";
  std::ofstream(place.folder() / "bank-7.safetensors") << "of a kill?";
  commit_locked(place.part(), {8, 5, document("bank-5.safetensors"), {}});
  CHECK(snapshot(place.folder()).count("bank-7.safetensors") == 1);
}

static void nothing_is_written_or_deleted_through_a_link() {
  for (const char* name : {"products", "products/part", "products/part/.lock",
                           "products/part/history", "products/part/references",
                           "products/part/references/b.png", "products/part/product.json"}) {
    const Place place;
    commit_locked(place.part(), first());
    const fs::path link = place.root() / name, outside = place.root() / "outside";
    if (fs::exists(link))
      fs::rename(link, outside);
    else
      std::ofstream(outside) << "precious";
    fs::create_symlink(outside, link);
    const auto before = snapshot(place.root());
    const std::string text =
        failure([&] { commit_locked(place.part(), second()); }, ANOCO_BAD_BUNDLE);
    CHECK(text == link.string() + " is a link; a bundle contains no links: copy the file itself");
    CHECK(snapshot(place.root()) == before);
  }
}

static void a_fifo_is_refused_and_not_waited_for() {
  for (const char* name : {".lock", "product.json", "history/product-9.json", "bank-9"}) {
    const Place place;
    commit_locked(place.part(), first());
    fs::remove(place.folder() / name);
    CHECK(mkfifo((place.folder() / name).c_str(), 0600) == 0);
    const std::string text =
        failure([&] { commit_locked(place.part(), second()); }, ANOCO_BAD_BUNDLE);
    CHECK(has(text, name) && has(text, " is a FIFO, not a file; remove it"));
  }
}

static void a_file_that_was_there_stays_when_a_commit_fails() {
  const Place place;
  commit_locked(place.part(), first());
  Generation again = second();
  again.files.push_back({"references/a.png", bytes("A")});  // the same picture, enrolled again
  renames = {Fault::fails, 4, 0};
  CHECK(has(failure([&] { commit_locked(place.part(), again); }), "cannot write "));
  CHECK(snapshot(place.folder()) == kFirst);
}

static void a_folder_that_cannot_be_made_is_one_line() {
  const Place place;
  const anoco::ProductPlace nowhere{place.root() / "none", "part"};
  std::string text = failure([&] { anoco::ProductLock(nowhere, 0); });
  CHECK(has(text, "cannot write ") && has(text, "No such file or directory; nothing was changed"));
  std::ofstream(place.root() / "products" / "file") << "in the way";
  text = failure([&] { anoco::ProductLock({place.root(), "file"}, 0); }, ANOCO_BAD_BUNDLE);
  CHECK(has(text, "products/file is a file, not a folder; remove it"));
}

static void a_lock_is_held_by_one() {
  const Place place;
  {
    const anoco::ProductLock lock(place.part(), 0);
    const std::string text = failure([&] { anoco::ProductLock(place.part(), 0.12); });
    CHECK(has(text, "another process is changing ") && has(text, "; try again when it is done"));
    const anoco::ProductLock other({place.root(), "other"}, 0);
  }
  const anoco::ProductLock again(place.part(), 0);
}

static void a_lock_is_waited_for_and_falls_with_its_process() {
  const Place place;
  int ready[2];
  CHECK(pipe(ready) == 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const anoco::ProductLock lock(place.part(), 0);
    if (write(ready[1], "!", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  CHECK(read(ready[0], &byte, 1) == 1);
  CHECK(!failure([&] { anoco::ProductLock(place.part(), 0); }).empty());
  const pid_t killer = fork();
  if (killer == 0) {
    usleep(100000);
    kill(holder, SIGKILL);
    _exit(0);
  }
  const anoco::ProductLock lock(place.part(), 60);
  waitpid(holder, nullptr, 0);
  waitpid(killer, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

int main() {
  generations_follow_each_other();
  everything_is_on_the_disk_before_it_counts();
  numbers_are_never_used_twice();
  a_kill_at_every_step_leaves_the_old_state_or_the_new_one();
  a_kill_in_the_first_commit_never_leaves_history_alone();
  a_full_disk_at_any_step_changes_nothing();
  a_disk_that_fails_after_the_rename_loses_nothing();
  files_that_no_generation_names_are_swept();
  nothing_is_written_or_deleted_through_a_link();
  a_fifo_is_refused_and_not_waited_for();
  a_file_that_was_there_stays_when_a_commit_fails();
  a_folder_that_cannot_be_made_is_one_line();
  a_lock_is_held_by_one();
  a_lock_is_waited_for_and_falls_with_its_process();
  return 0;
}
