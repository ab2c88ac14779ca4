#include "gpu/product_path.hpp"

#include <cstdlib>
#include <string>

#include "anoco_cuda.h"
#include "gpu/cublas.hpp"
#include "gpu/product_record.hpp"

namespace anoco::gpu {

Factors factors_of(Operands features) {
  if (features == Operands::float16) return Factors::float16;
  const char* wanted = std::getenv("ANOCO_EDGE_CUDA_FLOAT32");
  const std::string name = wanted != nullptr ? wanted : "";
  if (name.empty() || name == "parts") return Factors::parts;
  if (name == "plain") return Factors::plain_float32;
  fail(ANOCO_INVALID_ARGUMENT, "ANOCO_EDGE_CUDA_FLOAT32 is " + name, "set it to parts or plain");
}

ProductPath choose_path(uint32_t wanted, int ordinal, Factors factors, int64_t dim, int64_t refs) {
  switch (wanted) {
    case ANOCO_PRODUCTS_AUTO:
      return recorded_path(product_record_file(ordinal), factors, dim, refs)
                             .value_or(ProductPath::cublas) == ProductPath::cublas &&
                     has_cublas()
                 ? ProductPath::cublas
                 : ProductPath::own;
    case ANOCO_PRODUCTS_CUBLAS: cublas(); return ProductPath::cublas;
    case ANOCO_PRODUCTS_OWN: return ProductPath::own;
    default:
      fail(ANOCO_INVALID_ARGUMENT,
           "products is " + std::to_string(wanted) +
               ": use ANOCO_PRODUCTS_AUTO, ANOCO_PRODUCTS_CUBLAS or ANOCO_PRODUCTS_OWN");
  }
}

}  // namespace anoco::gpu
