// Tests the readers of a bundle one by one, on bytes made here. What Python writes is compared in
// tests/native/test_native_bundle.py.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "bundle/checksum.hpp"
#include "bundle/documents.hpp"
#include "bundle/inflate.hpp"
#include "bundle/json.hpp"
#include "bundle/png.hpp"
#include "bundle/safetensors.hpp"
#include "bundle/sha256.hpp"
#include "bundle/tensors.hpp"
#include "failure.hpp"
#include "tests/check.h"

using namespace anoco;

namespace {

// Returns the message of what was refused, or "" if nothing was.
template <class Work>
std::string refused(Work&& work) {
  try {
    work();
    return "";
  } catch (const Failure& failure) {
    CHECK(failure.status == ANOCO_BAD_BUNDLE);
    CHECK(failure.text.find('\n') == failure.text.npos);
    return failure.text;
  }
}

bool contains(const std::string& text, const char* part) { return text.find(part) != text.npos; }

// ---- JSON

std::string json_error(const std::string& text) {
  return refused([&] { parse_json(text, "a.json"); });
}

void json_is_read_as_it_is_written() {
  const Json document = parse_json(
      R"( {"text": "a\u00e9\ud83d\ude00\n\/", "whole": -9223372036854775808, "real": 1e-3,
           "list": [true, false, null, [], {}]} )",
      "a.json");
  CHECK(*document.find("text")->as<std::string>() == "a\xC3\xA9\xF0\x9F\x98\x80\n/");
  CHECK(*document.find("whole")->as<int64_t>() == INT64_MIN);
  CHECK(*document.find("real")->as<double>() == 1e-3);
  CHECK(document.find("list")->as<Json::Array>()->size() == 5);
  CHECK(document.find("other") == nullptr);
  CHECK(parse_json("-0", "a.json").as<int64_t>() != nullptr);
  CHECK(parse_json("-0.0", "a.json").as<double>() != nullptr);
}

void json_that_is_none_is_refused_with_its_place() {
  CHECK(json_error("[1, 2,]") ==
        "a.json is not JSON: a value is expected, at byte 6; the bundle is damaged or was edited: "
        "copy or make it again");
  for (const char* text : {"",
                           " ",
                           "{",
                           "[",
                           "[1",
                           "[1 2]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "01",
                           "1.",
                           "1.e3",
                           ".5",
                           "+1",
                           "-",
                           "1e",
                           "1e+",
                           "NaN",
                           "Infinity",
                           "-Infinity",
                           "nul",
                           "tru",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\u123",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"\t\"",
                           "\"\xFF\"",
                           "\"\xC0\x80\"",
                           "\"\xED\xA0\x80\"",
                           "\"\xE2\x82\"",
                           "\"\xF4\x90\x80\x80\"",
                           "\"\xF0\x80\x80\x80\"",
                           "1 2",
                           "[]x",
                           "1e999",
                           "9223372036854775808",
                           "\xEF\xBB\xBF{}",
                           "{\"a\": 1, \"a\": 2}",
                           "\"\\u+123\""})
    CHECK(contains(json_error(text), "a.json is not JSON"));
  CHECK(json_error(std::string(64, '[') + "1" + std::string(64, ']')) == "");
  CHECK(contains(json_error(std::string(65, '[') + std::string(65, ']')), "nested too deeply"));
  CHECK(contains(json_error(std::string(1 << 20, '[')), "nested too deeply"));
  CHECK(contains(json_error(std::string("[\0]", 3)), "a value is expected"));
}

void json_is_written_as_python_does() {
  CHECK(write_json(parse_json(R"({"a":[1,2.5,{}],"b":[],"c":"\u001f\"\\\u007f"})", "a.json")) ==
        "{\n \"a\": [\n  1,\n  2.5,\n  {}\n ],\n \"b\": [],\n \"c\": \"\\u001f\\\"\\\\\x7f\"\n}");
  CHECK(repr(1e16) == "1e+16" && repr(123456789012345.0) == "123456789012345.0");
  CHECK(repr(1e-5) == "1e-05" && repr(0.0001) == "0.0001" && repr(-0.0) == "-0.0");
  CHECK(repr(0.1) == "0.1" && repr(1.5e300) == "1.5e+300" && repr(5e-324) == "5e-324");
  bool written = true;
  try {
    repr(std::nan(""));
  } catch (const Failure& failure) {
    written = failure.status != ANOCO_INTERNAL;
  }
  CHECK(!written);
}

void members_are_replaced_in_place_or_appended() {
  Json document = parse_json(R"({"a": 1, "b": 2})", "a.json");
  document.set("a", "x");
  document.set("c", true);
  CHECK(write_json(document) == "{\n \"a\": \"x\",\n \"b\": 2,\n \"c\": true\n}");
}

// ---- hashes and checksums

void hashes_are_those_of_the_standard() {
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

void hashes_do_not_depend_on_pieces_or_instructions() {
  std::string data;
  for (int i = 0; i < 300; ++i) data += static_cast<char>(i * 7);
  for (size_t size = 0; size <= data.size(); ++size) {
    Sha256 pieces;
    for (size_t at = 0; at < size; at += 13)
      pieces.update(&data[at], std::min<size_t>(13, size - at));
    CHECK(pieces.hex() == sha256_hex(data.substr(0, size)));
  }
  // Computes SHA-256 of one block: the plain code gives the same state as the processor's
  // instructions.
  std::string block = "abc\x80" + std::string(59, '\0') + "\x18";
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  sha256_blocks_portable(state, reinterpret_cast<const unsigned char*>(block.data()), 1);
  CHECK(state[0] == 0xba7816bf && state[7] == 0xf20015ad);
}

void a_sealed_document_shows_every_change() {
  const std::string text =
      write_with_checksum(parse_json(R"({"checksum": "", "a": [1, "\u00e9"]})", "a.json"));
  CHECK(has_valid_checksum(text) && text.back() == '\n');
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK(!has_valid_checksum(changed));
  }
  CHECK(!has_valid_checksum(text.substr(0, text.size() - 1)) && !has_valid_checksum(""));
}

// ---- safetensors

Tensor tensor(const char* name, TensorType type, std::vector<int64_t> shape,
              std::string_view data) {
  return {name, type, std::move(shape), data};
}

Bytes file_of(const std::string& header, size_t data) {
  Bytes file(8 + header.size() + data);
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<unsigned char>(header.size() >> 8 * i);
  std::copy(header.begin(), header.end(), file.begin() + 8);
  return file;
}

std::string tensors_error(const Bytes& file) {
  return refused([&] { read_safetensors(view(file), "a is no bank"); });
}

void tensors_come_back() {
  const float numbers[] = {1, 2, 3};
  const std::string_view floats(reinterpret_cast<const char*>(numbers), sizeof numbers);
  const Bytes file = write_safetensors({tensor("b", TensorType::u8, {2}, "xy"),
                                        tensor("a", TensorType::f32, {3, 1}, floats),
                                        tensor("none", TensorType::i16, {0, 7}, "")});
  const auto tensors = read_safetensors(view(file), "a");
  CHECK(tensors.size() == 3 && tensors[0].name == "a" && tensors[2].name == "b");
  CHECK(find_tensor(tensors, "a")->as<float>()[2] == 3);
  CHECK(find_tensor(tensors, "b")->data == "xy");
  CHECK(tensor_items(*find_tensor(tensors, "none")) == 0);
  CHECK(find_tensor(tensors, "c") == nullptr);
  for (size_t size = 0; size < file.size(); ++size)
    CHECK(tensors_error(Bytes(file.begin(), file.begin() + static_cast<ptrdiff_t>(size))) != "");
}

void tensors_that_do_not_fit_their_file_are_refused() {
  const auto one = [](const char* shape, const char* offsets, const char* type = "U8") {
    return std::string("\"a\":{\"dtype\":\"") + type + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}";
  };
  // The data begins at 8 + the header's length, which is padded so that it is aligned.
  const auto error = [](std::string header, size_t data) {
    header = "{" + header + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return tensors_error(file_of(header, data));
  };
  CHECK(error(one("[4]", "[0,4]"), 4) == "");
  CHECK(error("\"__metadata__\":{\"format\":\"np\"}," + one("[4]", "[0,4]"), 4) == "");
  CHECK(contains(error(one("[4]", "[0,4]"), 5), "something follows"));
  CHECK(contains(error(one("[4]", "[1,5]"), 5), "overlap or leave gaps"));
  CHECK(contains(error(one("[4]", "[0,4]"), 3), "outside the file"));
  CHECK(contains(error(one("[4]", "[4,0]"), 4), "outside the file"));
  CHECK(contains(error(one("[5]", "[0,4]"), 4), "another size"));
  CHECK(contains(error(one("[4294967296,4294967296,4]", "[0,4]"), 4), "a shape that is not read"));
  CHECK(contains(error(one("[4611686018427387905]", "[0,4]", "F32"), 4), "not read here"));
  CHECK(contains(error(one("[0,4611686018427387905,4]", "[0,0]"), 0), "not read here"));
  CHECK(contains(error(one("[1,1,1,1,1,1,1,1,4]", "[0,4]"), 4), "not read here"));
  CHECK(contains(error("\"__metadata__\":{\"a\":1}," + one("[4]", "[0,4]"), 4), "more than texts"));
  CHECK(contains(error("\"__metadata__\":[]," + one("[4]", "[0,4]"), 4),
                 "metadata is not an object"));
  CHECK(contains(error(one("[-4]", "[0,4]"), 4), "shape that holds no sizes"));
  CHECK(contains(error(one("[4.0]", "[0,4]"), 4), "shape that holds no sizes"));
  CHECK(contains(error(one("4", "[0,4]"), 4), "not a list"));
  CHECK(contains(error(one("[4]", "[0,4,4]"), 4), "outside the file"));
  CHECK(contains(error(one("[1]", "[0,4]", "X32"), 4), "dtype"));
  CHECK(contains(error("\"a\":{\"dtype\":\"U8\",\"shape\":[]}", 1), "not described"));
  CHECK(contains(tensors_error(file_of("[]", 0)), "not an object"));
  CHECK(contains(tensors_error(file_of("{", 0)), "is not JSON"));
  CHECK(contains(tensors_error(Bytes(8, 0xFF)), "header is too large"));
  // Seven bytes of header leave the numbers on an odd address.
  const std::string odd = "{" + one("[1]", "[0,4]", "F32") + "}";
  CHECK(contains(tensors_error(file_of(odd + std::string(1 + 8 - odd.size() % 8, ' '), 4)),
                 "not aligned"));
}

// ---- PNG

bool unpacks_to(std::string stream, const std::string& expected) {
  std::string out(expected.size(), '?');
  return inflate(stream, reinterpret_cast<unsigned char*>(&out[0]), out.size()) && out == expected;
}

void streams_of_every_kind_are_unpacked() {
  const std::string stored(
      "\x78\x01\x01\x03\x00\xfc\xff"
      "abc"
      "\x02\x4d\x01\x27",
      14);
  const std::string fixed("\x78\x9c\x4b\x4c\x4a\x06\x00\x02\x4d\x01\x27", 11);
  CHECK(unpacks_to(stored, "abc"));
  CHECK(unpacks_to(fixed, "abc"));
  for (const std::string& stream : {stored, fixed}) {
    CHECK(!unpacks_to(stream, "ab"));
    CHECK(!unpacks_to(stream, "abcd"));
    CHECK(!unpacks_to(stream + "x", "abc"));
    for (size_t size = 0; size < stream.size(); ++size)
      CHECK(!unpacks_to(stream.substr(0, size), "abc"));
    for (size_t bit = 0; bit < 8 * stream.size(); ++bit) {
      std::string changed = stream;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
      std::string out(3, '?');
      // One bit of the header says how hard the compressor tried, and its change goes unnoticed.
      if (inflate(changed, reinterpret_cast<unsigned char*>(&out[0]), 3)) CHECK(out == "abc");
    }
  }
}

void a_mask_that_is_no_png_says_what_to_do() {
  const auto error = [](const std::string& file) {
    return refused([&] { decode_mask(file, "mask.png"); });
  };
  CHECK(error("GIF89a") ==
        "mask.png is not a PNG file; set the mask of the product again: anoco-edge product set "
        "--mask");
  CHECK(contains(error("\x89PNG\r\n\x1a\n"), "damaged or incomplete"));
}

// ---- documents

void names_of_products() {
  CHECK(is_product_name("part") && is_product_name("a-1_b.c") && is_product_name("größe"));
  for (const char* name : {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "a\\b", "*", "a\u00A0b",
                           "\u2192", "\u202E", "a\xC3"})
    CHECK(!is_product_name(name));
  CHECK(is_product_name("\u90E8\u54C1") && is_product_name("\u00B5m") &&
        is_product_name("\U00020000"));
}

void tiles_cover_the_canvas_or_are_refused() {
  InputContract input;
  input.width = input.height = 64;
  input.stride = 16;
  input.rows = input.cols = 4;
  input.dim = 8;
  Tiles tiles;
  tiles.width = 112;
  tiles.height = 64;
  tiles.columns = {0, 48};
  tiles.rows = {0};
  tiles.fit = Fit::letterbox;
  const InputContract tiled = input.tiled(tiles);
  CHECK(tiled.cols == 7 && tiled.rows == 4 && tiled.width == 112 && tiled.dim == 8);
  CHECK(tiled.fit == Fit::letterbox && input.tiled(std::nullopt).cols == 4);
  const auto error = [&](std::vector<int64_t> columns) {
    tiles.columns = std::move(columns);
    return refused([&] { input.tiled(tiles); });
  };
  CHECK(contains(error({0, 40, 48}), "tiles at 0, 40, 48 do not cover 112 pixels"));
  for (const auto& columns : std::vector<std::vector<int64_t>>{{0},
                                                               {48},
                                                               {16, 48},
                                                               {0, 32},
                                                               {0, 0, 48},
                                                               {0, 48, 48},
                                                               {0, 64, 48},
                                                               {0, -16, 48},
                                                               {0, INT64_MAX, 48},
                                                               {0, INT64_MIN, 48}})
    CHECK(contains(error(columns), "do not cover"));
  input.width = 32;
  input.cols = 2;
  CHECK(contains(error({0, 80}), "do not cover"));  // a gap between
  tiles.rows.assign(1025, 0);
  CHECK(contains(error({0}), "1 x 1025 tiles are more than 1024"));
  tiles.rows = {0};
  tiles.width = 524304;
  CHECK(contains(error({0}), "make more than 32768 patches one way"));
  tiles.width = tiles.height = 10016;
  CHECK(contains(error({0}), "tiles of 10016x10016 pixels together: at most 100 million"));
}

}  // namespace

int main() {
  json_is_read_as_it_is_written();
  json_that_is_none_is_refused_with_its_place();
  json_is_written_as_python_does();
  members_are_replaced_in_place_or_appended();
  hashes_are_those_of_the_standard();
  hashes_do_not_depend_on_pieces_or_instructions();
  a_sealed_document_shows_every_change();
  tensors_come_back();
  tensors_that_do_not_fit_their_file_are_refused();
  streams_of_every_kind_are_unpacked();
  a_mask_that_is_no_png_says_what_to_do();
  names_of_products();
  tiles_cover_the_canvas_or_are_refused();
  return 0;
}
