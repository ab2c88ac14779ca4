// Pillow's 8-bit antialiased bilinear resize, bit for bit as in src/picture/resize.cpp, in two
// passes over whole pictures; the first pass reads the camera's format. One thread per pixel.
#include "gpu_kernels.h"

enum { kRgb = 1, kBgr = 2, kRgba = 3, kBgra = 4, kGray = 5, kNv12 = 6 };  // ANOCO_RGB ...
enum { kFormat = 255 };                                                   // its bits

enum { kWeightBits = 22, kHalf = 1 << (kWeightBits - 1) };

struct Source {
  const unsigned char *image, *chroma;
  int format;
  long long stride, chroma_stride;
};

struct Color {
  int red, green, blue;
};

static __device__ int clip8(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

// The numbers are those of src/picture/formats.cpp.
static __device__ Color from_nv12(int format, int luma, int u, int v) {
  const bool hd = (format & ANOCO_GPU_BT709) != 0, full = (format & ANOCO_GPU_FULL_RANGE) != 0;
  const int scale = full ? 1048576 : hd ? 1220945 : 1220542;
  const int red_v = full ? (hd ? 1651297 : 1470104) : hd ? 1879825 : 1673527;
  const int green_v = full ? (hd ? 490864 : 748826) : hd ? 558796 : 852492;
  const int green_u = full ? (hd ? 196424 : 360853) : hd ? 223607 : 409993;
  const int blue_u = full ? (hd ? 1945738 : 1858077) : hd ? 2215014 : 2116026;
  const int y = max(luma - (full ? 0 : 16), 0) * scale, half = 1 << 19;
  u -= 128;
  v -= 128;
  Color c;
  c.red = clip8((y + red_v * v + half) >> 20);
  c.green = clip8((y - green_v * v - green_u * u + half) >> 20);
  c.blue = clip8((y + blue_u * u + half) >> 20);
  return c;
}

static __device__ Color pixel_of(const Source& from, int x, int y) {
  const unsigned char* row = from.image + y * from.stride;
  Color c;
  if ((from.format & kFormat) == kNv12) {
    const unsigned char* chroma = from.chroma + y / 2 * from.chroma_stride + x / 2 * 2;
    return from_nv12(from.format, row[x], chroma[0], chroma[1]);
  }
  if (from.format == kGray) {
    c.red = c.green = c.blue = row[x];
    return c;
  }
  const bool wide = from.format == kRgba || from.format == kBgra;
  const bool swapped = from.format == kBgr || from.format == kBgra;
  const unsigned char* pixel = row + (long long)x * (wide ? 4 : 3);
  c.red = pixel[swapped ? 2 : 0];
  c.green = pixel[1];
  c.blue = pixel[swapped ? 0 : 2];
  return c;
}

// Sums `reach` weighted pixels from (x, y) on, stepping right or down.
static __device__ Color weighted(const Source& from, int x, int y, bool down, const int* weights,
                                 int reach) {
  Color sum;
  sum.red = sum.green = sum.blue = kHalf;
  for (int k = 0; k < reach; ++k) {
    // There may be no pixel beyond the last one with a weight.
    if (weights[k] == 0) continue;
    const Color c = down ? pixel_of(from, x, y + k) : pixel_of(from, x + k, y);
    sum.red += c.red * weights[k];
    sum.green += c.green * weights[k];
    sum.blue += c.blue * weights[k];
  }
  return sum;
}

static __device__ unsigned char to_byte(int sum) {
  return (unsigned char)min(sum >> kWeightBits, 255);
}

static __device__ void write_pixel(const Color& sum, int channels, unsigned char* out) {
  out[0] = to_byte(sum.red);
  if (channels == 1) return;
  out[1] = to_byte(sum.green);
  out[2] = to_byte(sum.blue);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_TILE* ANOCO_GPU_TILE)
    anoco_resize_across(const unsigned char* image, const unsigned char* chroma, int format,
                        long long stride, long long chroma_stride, int width, int height,
                        const int* first, const int* weights, int reach, int channels,
                        unsigned char* out, long long out_stride) {
  const int x = blockIdx.x * ANOCO_GPU_TILE + threadIdx.x;
  const int y = blockIdx.y * ANOCO_GPU_TILE + threadIdx.y;
  if (x >= width || y >= height) return;
  const Source from = {image, chroma, format, stride, chroma_stride};
  const Color sum = weighted(from, first[x], y, false, weights + (long long)x * reach, reach);
  write_pixel(sum, channels, out + y * out_stride + (long long)x * channels);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_TILE* ANOCO_GPU_TILE)
    anoco_resize_down(const unsigned char* image, const unsigned char* chroma, int format,
                      long long stride, long long chroma_stride, int width, int height,
                      const int* first, const int* weights, int reach, int channels,
                      unsigned char* out, long long out_stride) {
  const int x = blockIdx.x * ANOCO_GPU_TILE + threadIdx.x;
  const int y = blockIdx.y * ANOCO_GPU_TILE + threadIdx.y;
  if (x >= width || y >= height) return;
  const Source from = {image, chroma, format, stride, chroma_stride};
  const Color sum = weighted(from, x, first[y], true, weights + (long long)y * reach, reach);
  write_pixel(sum, channels, out + y * out_stride + (long long)x * channels);
}

extern "C" __global__ void __launch_bounds__(ANOCO_GPU_TILE* ANOCO_GPU_TILE)
    anoco_fill(unsigned char* out, int width, int height, int left, int top, int inner_width,
               int inner_height, int red, int green, int blue) {
  const int x = blockIdx.x * ANOCO_GPU_TILE + threadIdx.x;
  const int y = blockIdx.y * ANOCO_GPU_TILE + threadIdx.y;
  if (x >= width || y >= height) return;
  if (x >= left && x < left + inner_width && y >= top && y < top + inner_height) return;
  out += ((long long)y * width + x) * 3;
  out[0] = (unsigned char)red;
  out[1] = (unsigned char)green;
  out[2] = (unsigned char)blue;
}
