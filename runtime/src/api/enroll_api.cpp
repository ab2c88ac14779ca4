// The C boundary of enrollment.
#include <optional>
#include <string>
#include <vector>

#include "api/boundary.hpp"
#include "detector/handle.hpp"
#include "picture/prepare.hpp"
#include "teaching/teacher.hpp"

namespace {

std::vector<anoco::NamedPicture> read_pictures(const anoco_image* const* pictures, int64_t count,
                                               const char* const* names) {
  if (count < 1)
    anoco::fail(ANOCO_INVALID_ARGUMENT,
                "count is " + std::to_string(count) + ": give at least one picture of a good part");
  anoco::need(pictures, "pictures");
  std::vector<anoco::NamedPicture> read;
  for (int64_t k = 0; k < count; ++k) {
    anoco::need(pictures[k], "a picture");
    if (names != nullptr) anoco::need(names[k], "a name");
    const std::string name =
        names != nullptr ? names[k] : "frame-" + std::to_string(k + 1) + ".png";
    if (name.empty())
      anoco::fail(ANOCO_INVALID_ARGUMENT, "a picture has an empty name",
                  "name every picture, or leave options.names out");
    read.push_back({name, anoco::checked_image(pictures[k])});
    anoco::check_on_host(read.back().image);
  }
  return read;
}

}  // namespace

extern "C" anoco_status anoco_enroll(anoco_detector* detector, const anoco_image* const* pictures,
                                     int64_t count, const anoco_enroll_options* options,
                                     anoco_enrolled* out) {
  return anoco::guarded([&] {
    anoco::need(detector, "detector");
    if (out != nullptr) anoco::check_out(out);
    const auto asked = anoco::read_options(options, anoco_enroll_options ANOCO_ENROLL_OPTIONS_INIT);
    anoco::check_reserved(asked.reserved, "the enroll options'");
    std::optional<std::string> product;
    if (asked.product != nullptr) product = asked.product;
    const auto given = read_pictures(pictures, count, asked.names);
    const anoco::Teacher teacher(detector->detector->bundle(), detector->detector->engine());
    const anoco::EnrollmentSummary summary = teacher.enroll(given, product);
    if (out == nullptr) return;
    anoco::write_out(out, anoco_enrolled{sizeof(anoco_enrolled), 0, summary.added,
                                         summary.duplicates, summary.references, summary.patches,
                                         summary.generation, summary.threshold});
  });
}
