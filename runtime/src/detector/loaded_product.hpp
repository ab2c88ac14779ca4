// One generation of a product in memory, with everything that inspecting its pictures needs. It is
// immutable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bundle/bundle.hpp"
#include "detector/method.hpp"
#include "picture/placement.hpp"
#include "scorer/bank.hpp"

namespace anoco {

struct Evidence {
  const Reference* reference;
  const std::string* file;  // below the bundle's folder
  int64_t row, col;
  Box box;  // in pixels of the reference picture
};

class LoadedProduct {
 public:
  // A `threshold` above 0 replaces the product's own.
  LoadedProduct(const Bundle& bundle, const std::string& name, double threshold);

  const Product& product() const { return product_; }
  const InputContract& window() const { return window_; }
  const InputContract& input() const { return input_; }
  std::shared_ptr<const Bank> bank() const { return bank_; }
  const Settings& method() const { return method_; }  // metric, lambda and floor
  const std::optional<Mask>& ignore() const { return ignore_; }
  // The energy that good parts have at each patch, which is subtracted; empty without a baseline.
  const std::vector<float>& baseline_energy() const { return baseline_energy_; }
  double threshold() const { return threshold_; }  // 0: none
  ThresholdKind threshold_kind() const { return threshold_kind_; }

  // Refuses a picture of another aspect ratio than the references (ANOCO_BAD_PICTURE), because the
  // same camera gives the same shape.
  void check_shape(int64_t width, int64_t height) const;
  // Tells whether every patch of every picture is scored.
  bool all_scored() const;
  // Returns the reference patch that a row of the bank comes from.
  Evidence evidence(int64_t anchor) const;

 private:
  Product product_;
  InputContract window_, input_;
  BankFile file_;
  std::shared_ptr<const Bank> bank_;
  Settings method_;
  std::optional<Mask> ignore_;
  std::vector<float> baseline_energy_;
  double threshold_;
  ThresholdKind threshold_kind_;
  std::vector<std::string> reference_files_;
};

}  // namespace anoco
