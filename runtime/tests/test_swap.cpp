// Two threads, each with a context, inspect with one detector while a third changes the product
// back and forth: every result is, bit for bit, that of exactly one of the products. argv[1] is a
// bundle whose first two products take pictures of the same size, argv[2] the execution provider if
// it is not "cpu". It also runs under TSan.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "anoco_edge.h"
#include "tests/check.h"
#include "tests/fake_backend.hpp"

namespace {

using fake::Picture;

constexpr int kWorkers = 2, kPictures = 4, kSwaps = 20;
size_t each = 500;  // pictures of a worker, at least

struct Found {
  std::string product;
  int64_t generation;
  double score;
  std::vector<float> energy;

  bool operator==(const Found& other) const {
    return product == other.product && generation == other.generation && score == other.score &&
           energy == other.energy;
  }
};

Found inspect(anoco_context* context, const Picture& picture) {
  anoco_result result = ANOCO_RESULT_INIT;
  CHECK(anoco_inspect(context, &picture.image, &result) == ANOCO_OK);
  const std::vector<float> energy(result.energy, result.energy + result.rows * result.cols);
  return {result.product, result.generation, result.score, energy};
}

anoco_context* make_context(anoco_detector* detector) {
  anoco_context_options options = ANOCO_CONTEXT_OPTIONS_INIT;
  options.threads = 1;
  anoco_context* context = nullptr;
  CHECK(anoco_context_create(detector, &options, &context) == ANOCO_OK);
  return context;
}

class Swapping {
 public:
  Swapping(anoco_detector* detector, std::vector<std::string> products,
           const std::vector<Picture>& pictures)
      : detector_(detector), products_(std::move(products)), pictures_(pictures) {
    anoco_context* context = make_context(detector);
    for (const std::string& product : products_) {
      CHECK(anoco_detector_select(detector, product.c_str()) == ANOCO_OK);
      expected_.emplace_back();
      for (const Picture& picture : pictures) expected_.back().push_back(inspect(context, picture));
    }
    anoco_context_destroy(context);
    CHECK(!(expected_[0][0].energy == expected_[1][0].energy));  // or nothing would be tested
  }

  void run() {
    std::vector<std::thread> workers;
    for (int k = 0; k < kWorkers; ++k) workers.emplace_back([this, k] { work(size_t(k)); });
    while (busy_ > 0) {
      const size_t next = size_t(++swaps_) % products_.size();
      CHECK(anoco_detector_select(detector_, products_[next].c_str()) == ANOCO_OK);
      CHECK(anoco_detector_select(detector_, "no such product") == ANOCO_NO_PRODUCT);
    }
    for (std::thread& worker : workers) worker.join();
    CHECK(swaps_ >= kSwaps);
  }

 private:
  void work(size_t offset) {
    anoco_context* context = make_context(detector_);
    for (size_t k = 0; k < each || swaps_ < kSwaps || seen_[0] == 0 || seen_[1] == 0; ++k) {
      const size_t which = (k + offset) % pictures_.size();
      const Found found = inspect(context, pictures_[which]);
      const size_t product = found.product == products_[0] ? 0 : 1;
      CHECK(found == expected_[product][which]);
      ++seen_[product];
    }
    anoco_context_destroy(context);
    --busy_;
  }

  anoco_detector* detector_;
  const std::vector<std::string> products_;
  const std::vector<Picture>& pictures_;
  std::vector<std::vector<Found>> expected_;  // by product and picture
  std::atomic<int> busy_{kWorkers}, swaps_{0};
  std::atomic<int> seen_[2] = {{0}, {0}};
};

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2 || count == 3);
  CHECK(fake::add(arguments[1]) == ANOCO_OK);
  anoco_bundle* bundle = nullptr;
  CHECK(anoco_bundle_open(arguments[1], &bundle) == ANOCO_OK);
  CHECK(anoco_bundle_product_count(bundle) >= 2);
  const std::vector<std::string> products = {anoco_bundle_product(bundle, 0),
                                             anoco_bundle_product(bundle, 1)};
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.backend = "fake";
  options.product = products[0].c_str();
  options.scorer = count == 3 ? arguments[2] : "cpu";
  if (count == 3) each = 50;  // on a simulated device
  anoco_detector* detector = nullptr;
  CHECK(anoco_detector_open(bundle, &options, &detector) == ANOCO_OK);
  anoco_bundle_destroy(bundle);

  const auto made = anoco::Bundle::open(arguments[1]).product(products[0]).references[0];
  std::vector<Picture> pictures;
  for (size_t seed = 1; seed <= kPictures; ++seed)
    pictures.emplace_back(made.width, made.height, seed);
  Swapping(detector, products, pictures).run();
  anoco_detector_destroy(detector);
  return 0;
}
