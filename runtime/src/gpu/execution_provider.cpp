#include "gpu/execution_provider.hpp"

#include <algorithm>
#include <mutex>

#include "anoco_cuda.h"
#include "failure.hpp"
#include "gpu/cublas.hpp"
#include "gpu/path_check.hpp"
#include "gpu/workspace.hpp"

namespace anoco::gpu {
namespace {

// Keeps one bank on the device for each product, however many contexts use it.
class BankCache {
 public:
  BankCache(SharedDevice device, Factors factors) : device_(std::move(device)), factors_(factors) {}

  const SharedDevice& device() const { return device_; }
  Factors factors() const { return factors_; }
  ProductPath path(const Bank& bank) const {
    return choose_path(ANOCO_PRODUCTS_AUTO, device_->ordinal(), factors_, bank.dim(), bank.rows());
  }

  std::shared_ptr<const DeviceBank> load(const std::shared_ptr<const LoadedProduct>& product) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto bank = bank_.lock();
    if (bank && product_.lock() == product) return bank;
    bank = std::make_shared<const DeviceBank>(device_, options(*product->bank()), factors_,
                                              path(*product->bank()));
    bank_ = bank;
    product_ = product;
    return bank;
  }

 private:
  static anoco_bank_options options(const Bank& bank) {
    anoco_bank_options options = ANOCO_BANK_OPTIONS_INIT;
    options.type = bank.half() ? ANOCO_FLOAT16 : ANOCO_FLOAT32;
    options.features = bank.address(0);
    options.rows = bank.rows();
    options.dim = bank.dim();
    return options;
  }

  SharedDevice device_;
  Factors factors_;
  std::mutex mutex_;
  // The bank of the product that was loaded last:
  std::weak_ptr<const DeviceBank> bank_;
  std::weak_ptr<const LoadedProduct> product_;
};

class DeviceSession : public Session {
 public:
  DeviceSession(std::shared_ptr<BankCache> banks, std::shared_ptr<const Engine> engine,
                const InputContract& window, const Log& log)
      : banks_(std::move(banks)), engine_(banks_->device(), std::move(engine), window, log) {}

  std::unique_ptr<Workspace> prepare(std::shared_ptr<const LoadedProduct> product,
                                     const ContextSettings& settings) override {
    auto bank = banks_->load(product);
    return std::make_unique<DeviceWorkspace>(engine_, std::move(bank), std::move(product),
                                             settings);
  }
  GraphCounts graph_counts() const override { return engine_.graph_counts(); }

 private:
  std::shared_ptr<BankCache> banks_;
  EngineSession engine_;
};

class DeviceExecutionProvider : public ExecutionProvider {
 public:
  DeviceExecutionProvider(SharedDevice device, Factors factors,
                          std::shared_ptr<const Engine> engine, const InputContract& window)
      : engine_(std::move(engine)),
        window_(window),
        banks_(std::make_shared<BankCache>(std::move(device), factors)) {}

  std::unique_ptr<Session> open_session(const Log& log) const override {
    return std::make_unique<DeviceSession>(banks_, engine_, window_, log);
  }
  int64_t bytes(const LoadedProduct& product, const ContextSettings& settings) const override {
    const auto with = [&](Operands features) {
      return DeviceWorkspace::bytes(*banks_->device(), product, settings, features,
                                    banks_->factors(), banks_->path(*product.bank()));
    };
    // An engine on the device may give features of either type, which shows when it runs.
    const bool on_device = engine_->cuda_device() >= 0;
    const int64_t workspace = on_device ? std::max(with(Operands::float32), with(Operands::float16))
                                        : with(Operands::float32);
    return EngineSession::bytes(*engine_, window_) + workspace;
  }
  void check_path(const Bundle& bundle, const Log& log) const override {
    check_device_path(banks_->device(), bundle, engine_, banks_->factors(), log);
  }

 private:
  std::shared_ptr<const Engine> engine_;
  InputContract window_;
  std::shared_ptr<BankCache> banks_;
};

}  // namespace

std::unique_ptr<const ExecutionProvider> open_execution_provider(
    std::shared_ptr<const Engine> engine, const ExecutionOptions& choice) {
  SharedDevice device = Device::open(int(choice.gpu));
  has_cublas();  // load it now, not with the first picture
  const int engine_device = engine->cuda_device();
  if (engine_device >= 0 && engine_device != device->ordinal())
    fail(ANOCO_INVALID_ARGUMENT, engine->label() + " computes on CUDA device " +
                                     std::to_string(engine_device) + ", the scorer on " +
                                     std::to_string(device->ordinal()) +
                                     ": both must be one; set options.gpu to the engine's device");
  const Factors factors = factors_of(choice.half ? Operands::float16 : Operands::float32);
  return std::make_unique<DeviceExecutionProvider>(std::move(device), factors, std::move(engine),
                                                   choice.window);
}

}  // namespace anoco::gpu
