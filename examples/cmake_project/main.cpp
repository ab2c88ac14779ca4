// Scores features of your own backbone with the library alone: no bundle, no engine.
//
// Prints the energy of three patches: one that equals a reference, one that is near, and one
// that resembles nothing.
#include <anoco_edge.hpp>
#include <cstdio>
#include <vector>

int main() {
  const std::vector<float> references = {30, 0, 0, /**/ 0, 30, 0, /**/ 20, 20, 0};
  const std::vector<float> query = {30, 0, 0, /**/ 29, 6, 0, /**/ 0, 0, 30};
  anoco_bank_options bank = ANOCO_BANK_OPTIONS_INIT;
  bank.features = references.data();
  bank.rows = 3;
  bank.dim = 3;
  float energy[3];
  int64_t anchor[3];
  try {
    anoco::check(
        anoco_score_patches(&bank, nullptr, query.data(), 3, energy, anchor, nullptr, nullptr));
  } catch (const anoco::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("libanoco_edge %s with %s kernels\n", anoco_version(), anoco_kernels());
  for (int k = 0; k < 3; ++k)
    std::printf("patch %d: energy %.4f, nearest reference %d\n", k, double(energy[k]),
                int(anchor[k]));
  return 0;
}
