// Finds the plan of a graph in the user's cache as the TensorRT backend does, and reads it:
//   read_plans GRAPH VERSION FULL_VERSION [GPU CAPABILITY DRIVER]
// If no GPU is named it uses the one of this machine. Prints path, batch and size. Exits with 1 and
// a line of text if there is no plan, with 2 and the reason if one is refused.
#include <cstdio>

#include "backends/tensorrt/fingerprint.hpp"
#include "backends/tensorrt/plan_cache.hpp"
#include "failure.hpp"

int main(int count, char** words) {
  if (count != 4 && count != 7) return 3;
  try {
    const anoco::PlanFingerprint here =
        count == 7 ? anoco::PlanFingerprint{words[2], words[4], words[5], words[6]}
                   : anoco::fingerprint_of(0, words[2]);
    const auto found = anoco::find_plan(anoco::plans_folder(), words[1], here, words[3]);
    if (!found) {
      std::printf("no plan for %s, %s, %s in %s\n", here.gpu.c_str(), here.capability.c_str(),
                  here.driver.c_str(), anoco::plans_folder().c_str());
      return 1;
    }
    const anoco::Bytes plan = anoco::read_plan(*found);
    std::printf("%s\n%lld\n%zu\n", found->path.c_str(), static_cast<long long>(found->max_batch),
                plan.size());
    return 0;
  } catch (const anoco::Failure& failure) {
    std::printf("%s\n", failure.text.c_str());
    return 2;
  }
}
