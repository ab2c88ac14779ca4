// Inspects a camera or a video file frame by frame; needs no screen.
//
//   ./camera line.anoco 0                              camera 0, until Ctrl-C
//   ./camera line.anoco shift.avi --frames 100 --out rejects
//
// It prints a line for each frame, and writes the anomalous ones with their regions drawn.
#include <anoco_edge.hpp>
#include <anoco_edge_opencv.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Options {
  std::string bundle, source, out;
  long frames = -1;
};

Options read_options(int count, char** arguments) {
  const char* usage = "usage: camera BUNDLE CAMERA|VIDEO [--frames N] [--out FOLDER]";
  if (count < 3 || count % 2 == 0) throw std::invalid_argument(usage);
  Options options;
  options.bundle = arguments[1];
  options.source = arguments[2];
  for (int k = 3; k < count; k += 2) {
    if (std::strcmp(arguments[k], "--frames") == 0)
      options.frames = std::atol(arguments[k + 1]);
    else if (std::strcmp(arguments[k], "--out") == 0)
      options.out = arguments[k + 1];
    else
      throw std::invalid_argument(usage);
  }
  return options;
}

cv::VideoCapture open_source(const std::string& source) {
  const bool number = source.find_first_not_of("0123456789") == std::string::npos;
  cv::VideoCapture opened = number ? cv::VideoCapture(std::stoi(source)) : cv::VideoCapture(source);
  if (!opened.isOpened()) throw std::runtime_error(source + " cannot be opened");
  return opened;
}

void draw(cv::Mat& frame, const std::vector<anoco_region>& regions) {
  for (const anoco_region& region : regions) {
    const cv::Point from(cvFloor(region.x0), cvFloor(region.y0));
    const cv::Point to(cvCeil(region.x1), cvCeil(region.y1));
    cv::rectangle(frame, cv::Rect(from, to), cv::Scalar(0, 0, 255), 2);
  }
}

void run(const Options& options) {
  const anoco::Bundle bundle(options.bundle);
  const anoco::Detector detector(bundle);
  cv::VideoCapture camera = open_source(options.source);
  cv::Mat frame;
  if (!camera.read(frame)) throw std::runtime_error(options.source + " gives no frame");
  anoco_context_options room = ANOCO_CONTEXT_OPTIONS_INIT;
  room.max_width = frame.cols;  // all frames of a camera have one size
  room.max_height = frame.rows;
  anoco::Context context(detector, room);
  if (!options.out.empty()) std::filesystem::create_directories(options.out);

  for (long number = 0; number != options.frames; ++number) {
    const anoco::Result result = context.inspect(anoco::image(frame));
    static const char* const words[] = {"uncalibrated", "good", "anomalous"};
    std::printf("frame %ld %s %.3g %.1f ms\n", number, words[result.verdict], result.ratio,
                context.timings().total);
    if (result.anomalous() && !options.out.empty()) {
      draw(frame, context.regions(result));
      cv::imwrite(options.out + "/frame-" + std::to_string(number) + ".png", frame);
    }
    if (!camera.read(frame)) break;  // the video ended, or the camera was unplugged
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    run(read_options(count, arguments));
    return 0;
  } catch (const std::exception& error) {  // anoco::Error is one
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
