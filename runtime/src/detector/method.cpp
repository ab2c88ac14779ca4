#include "detector/method.hpp"

namespace anoco {

Settings method_settings(const Product& product, const Bank& bank) {
  Settings settings;
  settings.metric = product.metric;
  settings.lambda = product.lambda_relative ? product.lambda * bank.median_norm() : product.lambda;
  settings.floor = product.floor;
  return settings;
}

}  // namespace anoco
