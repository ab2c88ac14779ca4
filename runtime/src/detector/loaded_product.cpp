#include "detector/loaded_product.hpp"

#include "failure.hpp"
#include "picture/augmentation.hpp"
#include "scorer/layout.hpp"

namespace anoco {
namespace {

std::shared_ptr<const Bank> make_bank(const BankFile& file, const std::string& name) {
  anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
  options.type = file.half ? ANOCO_FLOAT16 : ANOCO_FLOAT32;
  options.features = file.features;
  options.rows = file.rows;
  options.dim = file.dim;
  try {
    return std::make_shared<const Bank>(options);
  } catch (const Failure& failure) {
    fail(ANOCO_BAD_BUNDLE, name + ": " + failure.text + "; enroll the references again");
  }
}

// The energy that good parts have at each patch: the mean, and so many sigmas of the spread above
// it.
std::vector<float> make_baseline_energy(const std::optional<BaselineGrid>& grid) {
  if (!grid) return {};
  std::vector<float> energy(grid->mean.size());
  for (size_t k = 0; k < energy.size(); ++k)
    energy[k] = grid->mean[k] + float(grid->sigmas) * grid->spread[k];
  return energy;
}

}  // namespace

LoadedProduct::LoadedProduct(const Bundle& bundle, const std::string& name, double threshold)
    : product_(bundle.product(name)),
      window_(bundle.manifest().input),
      input_(window_.tiled(product_.tiles)),
      file_(bundle.bank(product_)),
      bank_(make_bank(file_, product_.bank->path)),
      method_(method_settings(product_, *bank_)),
      ignore_(bundle.mask(product_)),
      baseline_energy_(make_baseline_energy(bundle.baseline(product_))),
      threshold_(threshold > 0 ? threshold : product_.threshold),
      threshold_kind_(threshold > 0 ? ThresholdKind::manual : product_.threshold_kind) {
  bundle.check_references(product_);
  if (!is_valid_lambda(method_.lambda))
    fail(ANOCO_BAD_BUNDLE,
         "product " + product_.name + ": lambda is " + std::to_string(method_.lambda) + ", " +
             kLambdaRule,
         "set it again");
  for (const Reference& reference : product_.references)
    reference_files_.push_back("products/" + product_.name + "/" + reference.file.path);
}

void LoadedProduct::check_shape(int64_t width, int64_t height) const {
  if (product_.any_size || product_.references.empty()) return;
  const Reference& first = product_.references.front();
  if (!same_shape(width, height, first.width, first.height))
    fail(ANOCO_BAD_PICTURE, "the picture is " + std::to_string(width) + "x" +
                                std::to_string(height) + ", the references are " +
                                std::to_string(first.width) + "x" + std::to_string(first.height) +
                                ": inspect pictures of the same shape, or allow all with: "
                                "anoco-edge product set --any-size");
}

bool LoadedProduct::all_scored() const {
  return input_.fit == Fit::stretch && product_.region.empty() && !ignore_;
}

Evidence LoadedProduct::evidence(int64_t anchor) const {
  const size_t number = size_t(file_.reference[anchor]);
  const Reference& reference = product_.references[number];
  size_t view = size_t(file_.view[anchor]);
  Affine affine = kIdentity;  // the first view, then the product's, then the reference's own
  if (view > product_.views.size()) {
    affine = reference.views[view - 1 - product_.views.size()];
  } else if (view > 0) {
    affine = product_.views[view - 1];
  }
  const Box box = box_in_source(affine, patch_box(input_, file_.row[anchor], file_.col[anchor]));
  const auto [row, col] = patch_in_source(input_, box);
  const Placement placement = place(input_, reference.width, reference.height);
  return {&reference, &reference_files_[number], row, col, placement.to_picture(box)};
}

}  // namespace anoco
