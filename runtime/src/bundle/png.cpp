#include "bundle/png.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "bundle/crc32.hpp"
#include "bundle/inflate.hpp"
#include "failure.hpp"
#include "picture/size.hpp"

namespace anoco {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr uint8_t kWhite = 127;  // brighter values are set

enum ColorType : int { kGray = 0, kRgb = 2, kPalette = 3, kGrayAlpha = 4, kRgba = 6 };

uint32_t big_endian(std::string_view at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(at[i]);
  return value;
}

class Decoder {
 public:
  explicit Decoder(const std::string& name) : name_(name) {}

  Mask decode(std::string_view file) {
    if (file.substr(0, kSignature.size()) != kSignature) refuse("is not a PNG file");
    chunks(file.substr(kSignature.size()));
    const size_t height = height_, line = 1 + row_bytes();
    if (height * line / kMostInflation > data_.size()) refuse("is damaged or incomplete");
    Bytes rows(height * line);
    if (!inflate(data_, rows.data(), rows.size())) refuse("is damaged or incomplete");
    unfilter(rows.data(), line);
    Mask mask;
    mask.width = width_;
    mask.height = height_;
    mask.set.resize(height * width_);
    for (size_t y = 0; y < height; ++y) threshold(&rows[y * line + 1], &mask.set[y * width_]);
    return mask;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ANOCO_BAD_BUNDLE,
         name_ + " " + why + "; set the mask of the product again: anoco-edge product set --mask");
  }

  void chunks(std::string_view rest) {
    for (bool first = true;; first = false) {
      if (rest.size() < 12) refuse("is damaged or incomplete");
      const uint32_t length = big_endian(rest);
      if (length > rest.size() - 12) refuse("is damaged or incomplete");
      const std::string_view kind = rest.substr(4, 4), content = rest.substr(8, length);
      if (big_endian(rest.substr(8 + length)) != crc32(rest.substr(4, 4 + length)))
        refuse("is damaged: a checksum differs");
      if (first != (kind == "IHDR")) refuse("is damaged: its header is not where it should be");
      if (kind == "IEND") return;
      chunk(kind, content);
      before_ = kind;
      rest.remove_prefix(12 + length);
    }
  }

  void chunk(std::string_view kind, std::string_view content) {
    if (kind == "IHDR") {
      header(content);
    } else if (kind == "PLTE") {
      palette(content);
    } else if (kind == "IDAT") {
      if (!data_.empty() && before_ != "IDAT") refuse("is damaged: its data is in pieces");
      data_ += content;
    } else if (kind == "eXIf" || has_orientation(kind, content)) {
      refuse("may have to be turned: it has EXIF data");
    } else if ((kind[0] & 0x20) == 0) {
      refuse("has the unknown chunk " + anoco::quoted(kind));
    }
  }

  // Pillow also looks for an orientation in these text chunks.
  static bool has_orientation(std::string_view kind, std::string_view content) {
    if (kind != "tEXt" && kind != "zTXt" && kind != "iTXt") return false;
    const std::string_view key = content.substr(0, content.find('\0'));
    return key == "exif" || key == "Raw profile type exif" || key == "XML:com.adobe.xmp";
  }

  void header(std::string_view content) {
    if (content.size() != 13) refuse("is damaged: its header has another length");
    width_ = big_endian(content);
    height_ = big_endian(content.substr(4));
    bits_ = content[8];
    const int color_type = content[9];
    const bool small = bits_ == 1 || bits_ == 2 || bits_ == 4, whole = bits_ == 8 || bits_ == 16;
    const bool fits = color_type == kGray      ? small || whole
                      : color_type == kPalette ? small || bits_ == 8
                                               : whole;
    channels_ = color_type == kRgb ? 3 : color_type == kRgba ? 4 : color_type == kGrayAlpha ? 2 : 1;
    color_channels_ = color_type == kRgb || color_type == kRgba ? 3 : 1;
    indexed_ = color_type == kPalette;
    const bool known = color_type == kGray || indexed_ || channels_ > 1;
    if (!known || !fits || content[10] != 0 || content[11] != 0) refuse("has an unknown format");
    if (content[12] != 0) refuse("is interlaced");
    if (const std::string why = size_problem(width_, height_); !why.empty()) refuse("is " + why);
  }

  void palette(std::string_view content) {
    if (palette_size_ > 0 || !data_.empty())
      refuse("is damaged: its palette is not where it should be");
    if (content.size() % 3 != 0 || content.size() > 3 * 256) refuse("has a damaged palette");
    palette_size_ = content.size() / 3;
    for (size_t i = 0; i < palette_size_; ++i)
      white_[i] = std::any_of(content.begin() + static_cast<ptrdiff_t>(3 * i),
                              content.begin() + static_cast<ptrdiff_t>(3 * i + 3),
                              [](char c) { return static_cast<unsigned char>(c) > kWhite; });
  }

  size_t row_bytes() const { return (size_t{width_} * channels_ * bits_ + 7) / 8; }

  void unfilter(unsigned char* rows, size_t line) const {
    const size_t step = std::max<size_t>(1, static_cast<size_t>(channels_ * bits_) / 8);
    const Bytes zeros(line);
    const unsigned char* above = zeros.data() + 1;
    for (uint32_t y = 0; y < height_; ++y, rows += line) {
      unsigned char* row = rows + 1;
      for (size_t x = 0; x < line - 1; ++x) {
        const int left = x < step ? 0 : row[x - step], up = above[x];
        const int corner = x < step ? 0 : above[x - step];
        row[x] = static_cast<unsigned char>(row[x] + predicted(rows[0], left, up, corner));
      }
      above = row;
    }
  }

  int predicted(int filter, int left, int up, int corner) const {
    switch (filter) {
      case 0: return 0;
      case 1: return left;
      case 2: return up;
      case 3: return (left + up) / 2;
      case 4: break;
      default: refuse("is damaged: it has an unknown filter");
    }
    const int across = std::abs(up - corner), down = std::abs(left - corner);
    const int both = std::abs(left + up - 2 * corner);
    if (across <= down && across <= both) return left;
    return down <= both ? up : corner;
  }

  void threshold(const unsigned char* row, uint8_t* out) const {
    for (size_t x = 0; x < width_; ++x) {
      bool white = false;
      for (size_t c = 0; c < color_channels_; ++c) white |= is_white(row, x * channels_ + c);
      out[x] = white;
    }
  }

  // Samples of 16 bits are judged by their high byte, samples of fewer bits by their high bit: the
  // upper half of the range is white.
  bool is_white(const unsigned char* row, size_t sample) const {
    if (bits_ == 16) return row[2 * sample] > kWhite;
    const size_t at = sample * bits_;
    const size_t value = row[at / 8] >> (8 - bits_ - at % 8) & ((1u << bits_) - 1);
    if (!indexed_) return value >> (bits_ - 1) != 0;
    if (value >= palette_size_) refuse("is damaged: it names colors that it does not have");
    return white_[value];
  }

  const std::string& name_;
  uint32_t width_ = 0, height_ = 0, bits_ = 0;
  uint32_t channels_ = 0,
           color_channels_ = 0;  // samples per pixel, and those of them that are not alpha
  bool indexed_ = false;
  size_t palette_size_ = 0;
  std::array<bool, 256> white_{};
  std::string data_;
  std::string_view before_;  // the type of the previous chunk
};

}  // namespace

Mask decode_mask(std::string_view file, const std::string& name) {
  return Decoder(name).decode(file);
}

}  // namespace anoco
