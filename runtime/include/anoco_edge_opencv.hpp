// anoco_edge_opencv.hpp - passes an OpenCV picture to the library without a copy.
//
//   cv::Mat frame;
//   camera >> frame;
//   const anoco::Result result = context.inspect(anoco::image(frame));
//
// It needs OpenCV's core module in the caller's program; the library itself does not.
#pragma once

#include <cstdint>
#include <opencv2/core.hpp>
#include <string>

#include "anoco_edge.hpp"

namespace anoco {

// The order of the channels. OpenCV itself reads pictures as BGR.
enum class Order { bgr, rgb };

namespace detail {

inline uint32_t format_of(const cv::Mat& picture, Order order) {
  const bool rgb = order == Order::rgb;
  switch (picture.type()) {
    case CV_8UC1: return ANOCO_GREY;
    case CV_8UC3: return rgb ? ANOCO_RGB : ANOCO_BGR;
    case CV_8UC4: return rgb ? ANOCO_RGBA : ANOCO_BGRA;
    default:
      throw Error(ANOCO_BAD_PICTURE, "a cv::Mat of " + cv::typeToString(picture.type()) +
                                         " cannot be inspected: convert it to CV_8UC1, CV_8UC3 or "
                                         "CV_8UC4");
  }
}

inline void check_matrix(const cv::Mat& picture) {
  if (picture.dims != 2 || picture.empty())
    throw Error(ANOCO_BAD_PICTURE, "the cv::Mat is empty, or has more than two dimensions");
}

}  // namespace detail

// The matrix must not change while the picture is inspected. It may be part of a larger one.
inline anoco_image image(const cv::Mat& picture, Order order = Order::bgr) {
  detail::check_matrix(picture);
  return image(picture.data, picture.cols, picture.rows, detail::format_of(picture, order),
               int64_t(picture.step[0]));
}

// Describes NV12 as decoders give it: one matrix of CV_8UC1 with the rows of the luma, then half as
// many rows of U, V pairs.
inline anoco_image nv12_image(const cv::Mat& frame) {
  detail::check_matrix(frame);
  if (frame.type() != CV_8UC1 || frame.rows % 3 != 0)
    throw Error(ANOCO_BAD_PICTURE,
                "an NV12 frame is a CV_8UC1 with three rows for two of the picture, this is a " +
                    cv::typeToString(frame.type()) + " with " + std::to_string(frame.rows));
  return image(frame.data, frame.cols, frame.rows / 3 * 2, ANOCO_NV12, int64_t(frame.step[0]));
}

}  // namespace anoco
