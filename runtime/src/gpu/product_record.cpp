#include "gpu/product_record.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "anoco_edge.h"
#include "bundle/cache_folder.hpp"
#include "bundle/directory.hpp"
#include "bundle/fields.hpp"
#include "bundle/files.hpp"
#include "bundle/sha256.hpp"

namespace anoco::gpu {
namespace fs = std::filesystem;
namespace {

constexpr size_t kLargestRecord = size_t{1} << 20;

// In the order of the enumeration.
constexpr std::initializer_list<const char*> kFactors = {"fp16", "parts", "fp32"};

struct Measurement {
  ProductSizes sizes;
  ProductTimes times;

  bool same_sizes(const ProductSizes& other) const {
    return sizes.factors == other.factors && sizes.dim == other.dim && sizes.refs == other.refs &&
           sizes.rows == other.rows;
  }
};

Measurement parse(const Field& field) {
  Members members(field);
  Measurement found;
  found.sizes.factors = Factors(members.need("factors").choice(kFactors));
  found.sizes.dim = members.need("dim").integer(1);
  found.sizes.refs = members.need("references").integer(1);
  found.sizes.rows = members.need("patches").integer(1);
  found.times.cublas = members.need("cublas_ms").at_least(0);
  found.times.own = members.need("own_ms").at_least(0);
  members.finish();
  return found;
}

Json describe(const Measurement& measured) {
  return Json::Object{{"factors", *(kFactors.begin() + int(measured.sizes.factors))},
                      {"dim", measured.sizes.dim},
                      {"references", measured.sizes.refs},
                      {"patches", measured.sizes.rows},
                      {"cublas_ms", measured.times.cublas},
                      {"own_ms", measured.times.own}};
}

// A file that is missing or no record has no measurements: it is replaced by the next.
std::vector<Measurement> read(const fs::path& file) {
  std::vector<Measurement> found;
  try {
    const Bytes bytes = read_small_file(file, kLargestRecord);
    const std::string name = file.string();
    const Json document = parse_json(view(bytes), name);
    Members members{Field(document, name)};
    for (const Field& field : members.need("measured").items()) found.push_back(parse(field));
    members.finish();
  } catch (const Failure&) {
    found.clear();
  }
  return found;
}

}  // namespace

fs::path product_record_file(int ordinal) {
  const DeviceInfo device = describe_device(ordinal);
  const std::string key = device.name + "\n" + std::to_string(device.capability) + "\n" +
                          std::to_string(device.memory) + "\n" + std::to_string(driver().version) +
                          "\n" + anoco_version();
  return cache_folder() / "products" / (sha256_hex(key).substr(0, 32) + ".json");
}

void record_products(const fs::path& file, const ProductSizes& sizes, const ProductTimes& times) {
  std::vector<Measurement> all = read(file);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const Measurement& old) { return old.same_sizes(sizes); }),
            all.end());
  all.push_back({sizes, times});
  Json::Array list;
  for (const Measurement& measured : all) list.push_back(describe(measured));
  try {
    fs::create_directories(file.parent_path());
    const Directory folder = Directory::open(file.parent_path());
    folder.put(file.filename().string(),
               write_json(Json::Object{{"measured", std::move(list)}}) + "\n");
    folder.sync();
  } catch (const std::system_error& error) {
    fail(ANOCO_STORAGE, file.string() + " cannot be written: " + error.code().message(),
         "set XDG_CACHE_HOME to a folder that can be");
  }
}

std::optional<ProductPath> recorded_path(const fs::path& file, Factors factors, int64_t dim,
                                         int64_t refs) {
  std::optional<ProductPath> best;
  double least = std::log(2.0) + 1e-9;
  for (const Measurement& measured : read(file)) {
    if (measured.sizes.factors != factors || measured.sizes.dim != dim) continue;
    const double apart = std::abs(std::log(double(refs) / double(measured.sizes.refs)));
    if (apart > least) continue;  // of equals the newest
    least = apart;
    best = measured.times.faster();
  }
  return best;
}

}  // namespace anoco::gpu
