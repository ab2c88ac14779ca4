// Several cameras share one detector: the backbone and the bank are loaded once, and each camera
// has its own thread and context.
//
//   ./multi_camera line.anoco washer 0 1 2
//
// Type the name of another product to change to it, or "quit" to end. Frames that are being
// inspected at that moment are finished with the old product; every line says which product was
// used.
#include <algorithm>
#include <anoco_edge.hpp>
#include <anoco_edge_opencv.hpp>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <opencv2/videoio.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

cv::VideoCapture open_source(const std::string& source) {
  const bool number = source.find_first_not_of("0123456789") == std::string::npos;
  cv::VideoCapture opened = number ? cv::VideoCapture(std::stoi(source)) : cv::VideoCapture(source);
  if (!opened.isOpened()) throw std::runtime_error(source + " cannot be opened");
  return opened;
}

// Runs one camera. An exception must not leave the thread, because it would end the program.
void watch(const anoco::Detector& detector, const std::string& source, unsigned cameras,
           const std::atomic<bool>& stop, std::atomic<bool>& failed) try {
  cv::VideoCapture camera = open_source(source);
  cv::Mat frame;
  if (!camera.read(frame)) throw std::runtime_error(source + " gives no frame");
  anoco_context_options options = ANOCO_CONTEXT_OPTIONS_INIT;
  options.max_width = frame.cols;
  options.max_height = frame.rows;
  // The processors are divided among the cameras; more threads than processors would slow all down.
  options.threads = std::max(1u, std::thread::hardware_concurrency() / cameras);
  anoco::Context context(detector, options);
  for (long number = 0; !stop; ++number) {
    const anoco::Result result = context.inspect(anoco::image(frame));
    static const char* const words[] = {"uncalibrated", "good", "anomalous"};
    std::printf("%s frame %ld: %s %s %.3g\n", source.c_str(), number, result.product,
                words[result.verdict], result.ratio);
    if (!camera.read(frame)) break;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", source.c_str(), error.what());
  failed = true;
}

// Reads product names until "quit"; without input it waits until the cameras end.
void take_commands(anoco::Detector& detector, std::atomic<bool>& stop) {
  for (std::string line; !stop && std::getline(std::cin, line);) {
    if (line == "quit") {
      stop = true;
      return;
    }
    try {
      detector.select(line);
      std::printf("changed over to %s\n", line.c_str());
    } catch (const anoco::Error& error) {  // the old product stays
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
}

int run(int count, char** arguments) {
  if (count < 4)
    throw std::invalid_argument("usage: multi_camera BUNDLE PRODUCT CAMERA|VIDEO [...]");
  anoco_detector_options options = ANOCO_DETECTOR_OPTIONS_INIT;
  options.product = arguments[2];
  anoco::Detector detector(anoco::Bundle(arguments[1]), options);
  std::atomic<bool> stop{false}, failed{false};
  const std::vector<std::string> sources(arguments + 3, arguments + count);
  std::vector<std::thread> threads;
  for (const std::string& source : sources)
    threads.emplace_back([&] { watch(detector, source, unsigned(sources.size()), stop, failed); });
  take_commands(detector, stop);
  for (std::thread& thread : threads) thread.join();
  return failed ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
