#include "api/boundary.hpp"
#include "bundle/handle.hpp"

using namespace anoco;

anoco_status anoco_bundle_open(const char* path, anoco_bundle** out) {
  return guarded([&] {
    need(path, "path");
    need(out, "out");
    auto handle = std::make_unique<anoco_bundle>();
    handle->bundle = std::make_shared<const Bundle>(Bundle::open(path));
    handle->products = handle->bundle->products();
    *out = handle.release();
  });
}

void anoco_bundle_destroy(anoco_bundle* bundle) { delete bundle; }

int64_t anoco_bundle_product_count(const anoco_bundle* bundle) {
  return bundle == nullptr ? 0 : static_cast<int64_t>(bundle->products.size());
}

const char* anoco_bundle_product(const anoco_bundle* bundle, int64_t number) {
  if (number < 0 || number >= anoco_bundle_product_count(bundle)) return nullptr;
  return bundle->products[static_cast<size_t>(number)].c_str();
}

anoco_status anoco_bundle_describe(const anoco_bundle* bundle, anoco_bundle_info* out) {
  return guarded([&] {
    need(bundle, "bundle");
    check_out(out);
    const Manifest& manifest = bundle->bundle->manifest();
    anoco_bundle_info info = ANOCO_BUNDLE_INFO_INIT;
    info.random_weights = manifest.random_weights ? 1 : 0;
    info.backbone = manifest.backbone.c_str();
    info.width = manifest.input.width;
    info.height = manifest.input.height;
    info.rows = manifest.input.rows;
    info.cols = manifest.input.cols;
    info.dim = manifest.input.dim;
    write_out(out, info);
  });
}
