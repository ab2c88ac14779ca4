#include "gpu/product_path.hpp"

#include "anoco_cuda.h"
#include "gpu/cublas.hpp"
#include "gpu/product_record.hpp"

namespace anoco::gpu {

ProductPath choose_path(uint32_t wanted, int ordinal, Operands operands, int64_t dim,
                        int64_t refs) {
  switch (wanted) {
    case ANOCO_PRODUCTS_AUTO:
      return recorded_path(product_record_file(ordinal), operands, dim, refs)
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
