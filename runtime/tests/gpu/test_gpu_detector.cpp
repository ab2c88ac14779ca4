// A device finds what the CPU finds, with the simulated driver: for every product of a bundle,
// engines on the host and on the device, pictures on the host and on the device in every format,
// and while products change. argv[1] is the bundle.
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "anoco_cuda.h"
#include "detector/detector.hpp"
#include "gpu/stream.hpp"
#include "tests/check.h"
#include "tests/gpu/device_backend.hpp"
#include "tests/gpu/owners.hpp"

extern "C" int cuMemAllocManaged(anoco::gpu::CUdeviceptr*, size_t, unsigned);  // of the driver

namespace {

using anoco::gpu::CUdeviceptr;
using anoco::gpu::Device;
using anoco::gpu::DeviceBuffer;
using anoco::gpu::PinnedBuffer;
using namespace owners;

struct Found {
  double score;
  int32_t verdict;
  int64_t regions, peak;
  std::vector<float> energy, similarity, map;
  std::vector<int64_t> anchor;
  std::vector<uint8_t> counted, outline;
};

Found copy(const anoco_result& r) {
  const int64_t grid = r.rows * r.cols, pixels = r.map_width * r.map_height;
  return {r.score,
          r.verdict,
          r.region_count,
          r.peak_row * r.cols + r.peak_col,
          {r.energy, r.energy + grid},
          {r.similarity, r.similarity + grid},
          {r.map, r.map + pixels},
          {r.anchor, r.anchor + grid},
          {r.counted, r.counted + grid},
          {r.outline, r.outline + pixels}};
}

// Energies that cancel almost completely, as those of a patch that is in the bank, have no
// significant digits.
void close(float got, float expected, float largest) {
  if (!(std::fabs(got - expected) <= 1e-4f * expected + 1e-6f * largest + 1e-9f))
    std::fprintf(stderr, "%g is not %g\n", double(got), double(expected));
  CHECK(std::fabs(got - expected) <= 1e-4f * expected + 1e-6f * largest + 1e-9f);
}

void compare(const Found& got, const Found& expected) {
  float largest = 0;
  for (const float energy : expected.energy) largest = std::max(largest, energy);
  CHECK(got.verdict == expected.verdict && got.regions == expected.regions);
  CHECK(got.peak == expected.peak && got.anchor == expected.anchor);
  CHECK(got.counted == expected.counted);
  close(float(got.score), float(expected.score), largest);
  for (size_t k = 0; k < got.energy.size(); ++k) {
    close(got.energy[k], expected.energy[k], largest);
    CHECK(std::fabs(got.similarity[k] - expected.similarity[k]) <= 1e-6f);
  }
  for (size_t k = 0; k < got.map.size(); ++k) close(got.map[k], expected.map[k], largest);
  size_t different = 0;  // pixels at the level itself
  for (size_t k = 0; k < got.outline.size(); ++k)
    different += got.outline[k] != expected.outline[k];
  CHECK(different <= got.outline.size() / 500);
}

// A picture in memory of the host, and the same in memory that the device reads.
class Picture {
 public:
  Picture(int64_t width, int64_t height, uint32_t format, int seed)
      : pixels_(size_t(width * height * 4)) {
    for (size_t k = 0; k < pixels_.size(); ++k)
      pixels_[k] = uint8_t((k * (k + 13 * size_t(seed)) / size_t(seed + 5)) % 200 + 30);
    here = owners::image(pixels_.data(), width, height, format);
  }

  // Page-locked and mapped, or managed: the host writes, the device reads, nothing is copied.
  anoco_image zero_copy(bool managed) {
    shared_ = std::make_unique<Shared>(managed, pixels_.size());
    std::copy(pixels_.begin(), pixels_.end(), shared_->data());
    anoco_image image = here;
    image.data = shared_->data();
    if (image.format == ANOCO_NV12) {
      image.stride = image.width;
      image.chroma = shared_->data() + image.width * image.height;
      image.chroma_stride = image.width;
    }
    image.memory = ANOCO_DEVICE;
    return image;
  }

  anoco_image on_device() {
    const auto device = Device::open(0);
    const anoco::gpu::CurrentDevice current(*device);
    const int64_t bytes = int64_t(pixels_.size());
    PinnedBuffer<uint8_t> staging(device, bytes);
    device_pixels_ = DeviceBuffer<uint8_t>(device, bytes);
    std::copy(pixels_.begin(), pixels_.end(), staging.data());
    const anoco::gpu::Stream stream(device);
    upload(staging, device_pixels_, bytes, stream.get());
    stream.wait();
    anoco_image image = here;
    image.data = device_pixels_.data();
    image.memory = ANOCO_DEVICE;
    return image;
  }

  anoco_image here;

 private:
  class Shared {
   public:
    Shared(bool managed, size_t bytes) : managed_(managed) {
      const anoco::gpu::CurrentDevice current(*device_);
      CUdeviceptr address = 0;
      if (managed) CHECK(cuMemAllocManaged(&address, bytes, 1) == 0);
      data_ = reinterpret_cast<void*>(address);
      if (!managed) anoco::gpu::driver().cuMemHostAlloc(&data_, bytes, 2);
    }
    ~Shared() {
      anoco::gpu::release_on_device(*device_, [&] {
        if (managed_)
          anoco::gpu::driver().cuMemFree_v2(anoco::gpu::address_of(data_));
        else
          anoco::gpu::driver().cuMemFreeHost(data_);
      });
    }
    uint8_t* data() const { return static_cast<uint8_t*>(data_); }

   private:
    bool managed_;
    std::shared_ptr<const Device> device_ = Device::open(0);
    void* data_ = nullptr;
  };

  std::vector<uint8_t> pixels_;
  DeviceBuffer<uint8_t> device_pixels_;
  std::unique_ptr<Shared> shared_;
};

std::string logged;

Detector open(const Bundle& bundle, const char* product, const char* backend, const char* scorer) {
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.backend = backend;
  options.product = product;
  options.scorer = scorer;
  options.log = [](void*, int32_t, const char* text) { logged += std::string(text) + "\n"; };
  return open_detector(bundle, options);
}

int64_t objects() {
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  return numbers.objects;
}

int64_t graph_launches() {
  simcuda_numbers numbers;
  simcuda_count(&numbers);
  return numbers.graph_launches;
}

struct Size {
  int64_t width, height;
};

Size size_of(const char* path, const std::string& product) {
  const auto made = anoco::Bundle::open(path).product(product).references[0];
  return {made.width, made.height};
}

bool has_views(const char* path, const std::string& product) {
  return anoco::Bundle::open(path).product(product).tta == anoco::Tta::paper;
}

bool has_tiles(const char* path, const std::string& product) {
  return anoco::Bundle::open(path).product(product).tiles.has_value();
}

// Every format from the host, some from the device.
void one_product(const char* path, const Bundle& bundle, const std::string& product,
                 const char* backend) {
  const Detector cpu = open(bundle, product.c_str(), "fake", "cpu");
  const Detector gpu = open(bundle, product.c_str(), backend, "cuda");
  const Context on_cpu = make_context(cpu), on_gpu = make_context(gpu);
  const Size size = size_of(path, product);
  const int64_t width = size.width / 2 * 2, height = size.height / 2 * 2;  // NV12 needs even sides
  for (uint32_t format = ANOCO_RGB; format <= ANOCO_NV12 + 1; ++format) {
    const bool hd = format > ANOCO_NV12;  // once more as high definition and in full range
    Picture picture(width, height, hd ? uint32_t{ANOCO_NV12} : format, int(format));
    if (hd) picture.here.matrix = picture.here.range = 1;
    const Found expected = copy(inspect(on_cpu, picture.here));
    compare(copy(inspect(on_gpu, picture.here)), expected);
    compare(copy(inspect(on_gpu, picture.on_device())), expected);
    for (const bool managed : {false, true})
      compare(copy(inspect(on_gpu, picture.zero_copy(managed))), expected);
    std::vector<float> maps[2] = {std::vector<float>(size_t(width * height)),
                                  std::vector<float>(size_t(width * height))};
    owners::check(anoco_result_map(on_cpu.get(), maps[0].data()));
    owners::check(anoco_result_map(on_gpu.get(), maps[1].data()));
    for (size_t k = 0; k < maps[0].size(); ++k)
      CHECK(std::fabs(maps[0][k] - maps[1][k]) <= 1e-3f * float(expected.score));
    anoco_timings times = ANOCO_TIMINGS_INIT;
    owners::check(anoco_result_timings(on_gpu.get(), &times));
    CHECK(times.preprocess >= 0 && times.scoring > 0 && times.total >= times.scoring);
  }
}

// In steady state a picture is two graphs and some copies, and allocates no memory of CUDA's.
void two_graphs_a_picture(const char* path, const Bundle& bundle, const std::string& product) {
  if (has_views(path, product) || has_tiles(path, product)) return;
  const Detector gpu = open(bundle, product.c_str(), "device", nullptr);
  const Context context = make_context(gpu);
  const Size size = size_of(path, product);
  const Picture picture(size.width, size.height, ANOCO_RGB, 3);
  inspect(context, picture.here);
  const int64_t made = objects(), launched = graph_launches();
  const int runs = fake::behavior().runs;
  for (int k = 0; k < 3; ++k) inspect(context, picture.here);
  CHECK(objects() == made && graph_launches() == launched + 6);
  CHECK(fake::behavior().runs == runs);  // the graph runs instead
}

// An engine that cannot be captured, and one that gives half precision.
void engines_of_all_kinds(const char* path, const Bundle& bundle, const std::string& product) {
  const Size size = size_of(path, product);
  const Picture picture(size.width, size.height, ANOCO_RGB, 5);
  const Detector captured = open(bundle, product.c_str(), "device", nullptr);
  const Context first = make_context(captured);
  const Found expected = copy(inspect(first, picture.here));

  logged.clear();
  fake::behavior().refuses_capture = true;
  const Detector plain = open(bundle, product.c_str(), "device", nullptr);
  const Context second = make_context(plain);
  CHECK(logged.find("not captured into a CUDA graph") != std::string::npos);
  CHECK(logged.find("capturing is refused") != std::string::npos);
  const Found found = copy(inspect(second, picture.here));
  CHECK(found.energy == expected.energy && found.map == expected.map);
  fake::behavior().refuses_capture = false;

  fake::behavior().type = ANOCO_FLOAT16;
  const Detector half = open(bundle, product.c_str(), "device", nullptr);
  const Context third = make_context(half);
  const Found rounded = copy(inspect(third, picture.here));
  CHECK(rounded.energy != expected.energy);
  CHECK(std::fabs(rounded.score - expected.score) <= 0.05 * expected.score + 1e-3);
  fake::behavior().type = ANOCO_FLOAT32;
}

// A change of product replaces what follows the engine, not the engine.
void products_change(const char* path, const Bundle& bundle) {
  const std::vector<std::string> names = products(bundle);
  const Detector gpu = open(bundle, names[0].c_str(), "device", nullptr);
  const Context context = make_context(gpu);
  const int runs = fake::behavior().runs;
  for (int round = 0; round < 2; ++round)
    for (const std::string& product : names) {
      owners::check(anoco_detector_select(gpu.get(), product.c_str()));
      const Detector cpu = open(bundle, product.c_str(), "fake", "cpu");
      const Context on_cpu = make_context(cpu);
      const Size size = size_of(path, product);
      const Picture picture(size.width, size.height, ANOCO_BGR, 7 + round);
      compare(copy(inspect(context, picture.here)), copy(inspect(on_cpu, picture.here)));
    }
  CHECK(fake::behavior().runs == runs);
}

template <class Work>
void refused(anoco_status status, const char* text, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    if (std::string(error.what()).find(text) == std::string::npos)
      std::fprintf(stderr, "%s\n", error.what());
    CHECK(error.status == status && std::string(error.what()).find(text) != std::string::npos);
    return;
  }
  CHECK(false);
}

// Only some patches are scored, as rows of a smaller matrix; an error names the patch of the grid.
void a_bad_patch_is_named(const char* path, const Bundle& bundle, const std::string& product) {
  if (has_tiles(path, product)) return;
  const Size size = size_of(path, product);
  const Picture picture(size.width, size.height, ANOCO_RGB, 9);
  for (const char* backend : {"fake", "device"})
    for (const char* scorer : {"cpu", "cuda"}) {
      if (backend == std::string("device") && scorer == std::string("cpu")) continue;
      const Detector detector = open(bundle, product.c_str(), backend, scorer);
      const Context context = make_context(detector);
      const Found found = copy(inspect(context, picture.here));
      int64_t last = int64_t(found.counted.size()) - 1;
      while (!found.counted[size_t(last)]) --last;
      fake::bad_patch = last;
      const std::string named = "query patch " + std::to_string(last) + " contains NaN";
      refused(ANOCO_BAD_FEATURES, named.c_str(), [&] { inspect(context, picture.here); });
      fake::bad_patch = -1;
      inspect(context, picture.here);
    }
}

// What anoco_query_memory says is what a context takes; the bank is shared by all of them.
void memory_is_told(const Bundle& bundle, const std::string& product) {
  const Detector gpu = open(bundle, product.c_str(), "fake", "cuda");
  const Context first = make_context(gpu);
  simcuda_numbers before, after;
  simcuda_count(&before);
  const Context second = make_context(gpu);
  simcuda_count(&after);
  const uint64_t taken =
      after.device_bytes + after.host_bytes - before.device_bytes - before.host_bytes;
  uint64_t said = 0;
  owners::check(anoco_query_memory(gpu.get(), nullptr, &said));
  if (!(taken <= said && said <= 2 * taken))
    std::fprintf(stderr, "%llu taken, %llu said\n", (unsigned long long)taken,
                 (unsigned long long)said);
  CHECK(taken <= said && said <= 2 * taken);
}

// The projection, which prunes on the CPU, is not computed for a device.
void only_the_cpu_projects(const char* path, const std::string& product) {
  for (const char* scorer : {"cpu", "cuda"}) {
    anoco::DetectorSettings settings;
    settings.engine.backend = "fake";
    settings.product = product;
    settings.provider = scorer;
    const auto detector = std::make_shared<anoco::Detector>(
        std::make_shared<const anoco::Bundle>(anoco::Bundle::open(path)), settings);
    const anoco::Context context(detector, anoco::ContextSettings());
    CHECK(detector->product()->bank()->projected() == (std::string(scorer) == "cpu"));
  }
}

void what_is_refused(const char* path, const Bundle& bundle, const std::string& product) {
  const Size size = size_of(path, product);
  Picture picture(size.width, size.height, ANOCO_RGB, 1);
  refused(ANOCO_INVALID_ARGUMENT, "scorer is 'gpu'",
          [&] { open(bundle, product.c_str(), "fake", "gpu"); });
  const Detector cpu = open(bundle, product.c_str(), "fake", nullptr);
  const Context on_cpu = make_context(cpu);
  refused(ANOCO_BAD_PICTURE, "lies on a CUDA device",
          [&] { inspect(on_cpu, picture.on_device()); });
  const Detector gpu = open(bundle, product.c_str(), "device", "cuda");
  const Context on_gpu = make_context(gpu);
  anoco_image wrong = picture.here;
  wrong.memory = ANOCO_DEVICE;
  refused(ANOCO_INVALID_ARGUMENT, "does not lead to memory of a CUDA device",
          [&] { inspect(on_gpu, wrong); });
  PinnedBuffer<uint8_t> unmapped(Device::open(0), 4 * size.width * size.height);
  wrong.data = unmapped.data();
  refused(ANOCO_INVALID_ARGUMENT, "nor to page-locked or managed memory that it can reach",
          [&] { inspect(on_gpu, wrong); });
  const anoco_image there = picture.on_device();
  simcuda_fail("cuPointerGetAttribute", 1, anoco::gpu::kInvalidContext);
  refused(ANOCO_ENGINE, "cuPointerGetAttribute", [&] { inspect(on_gpu, there); });
  inspect(on_gpu, there);
  wrong.memory = 7;
  refused(ANOCO_INVALID_ARGUMENT, "memory is 7", [&] { inspect(on_gpu, wrong); });
  inspect(on_gpu, picture.here);  // it continues to work
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  const char* path = arguments[1];
  setenv("ANOCO_CUDA_DRIVER", SIMCUDA_PATH, 1);
  CHECK(fake::add(path) == ANOCO_OK && fake::add_device(path) == ANOCO_OK);
  {
    const Bundle bundle = open_bundle(path);
    for (const std::string& product : products(bundle)) {
      one_product(path, bundle, product, "fake");
      one_product(path, bundle, product, "device");
      two_graphs_a_picture(path, bundle, product);
      engines_of_all_kinds(path, bundle, product);
      a_bad_patch_is_named(path, bundle, product);
      memory_is_told(bundle, product);
      only_the_cpu_projects(path, product);
      what_is_refused(path, bundle, product);
    }
    products_change(path, bundle);
  }
  CHECK(objects() == 0);
  return 0;
}
