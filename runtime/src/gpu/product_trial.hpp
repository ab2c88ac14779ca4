// Measures both ways to compute products (product_path.hpp) with a bank on a device.
#pragma once

#include "gpu/product_record.hpp"
#include "scorer/layout.hpp"

namespace anoco::gpu {

// Scores pictures of `rows` patches, which are made of the bank's, on either path: with graphs, as
// pictures are scored. Takes the memory of one scorer at a time.
ProductTimes measure_products(const SharedDevice& device, const anoco_bank_options& bank,
                              const Settings& settings, Factors factors, int64_t rows);

}  // namespace anoco::gpu
