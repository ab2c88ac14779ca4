#include "bundle/checksum.hpp"

#include <optional>

#include "bundle/documents.hpp"
#include "bundle/sha256.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

constexpr std::string_view kBefore = "\"checksum\": \"";
constexpr size_t kDigits = 64;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// Returns the position of the digits of the first checksum in a text.
std::optional<size_t> find_digits(std::string_view text) {
  for (size_t at = text.find(kBefore); at != text.npos; at = text.find(kBefore, at + 1)) {
    const size_t digits = at + kBefore.size();
    size_t end = digits;
    while (end < text.size() && end < digits + kDigits && is_hex(text[end])) ++end;
    if (end == digits + kDigits && end < text.size() && text[end] == '"') return digits;
  }
  return std::nullopt;
}

std::string hash_without(std::string_view text, size_t digits) {
  Sha256 hash;
  hash.update(text.data(), digits);
  hash.update(std::string(kDigits, '0').data(), kDigits);
  hash.update(text.data() + digits + kDigits, text.size() - digits - kDigits);
  return hash.hex();
}

}  // namespace

bool has_valid_checksum(std::string_view text) {
  const auto digits = find_digits(text);
  return digits && text.substr(*digits, kDigits) == hash_without(text, *digits);
}

std::string write_with_checksum(Json document) {
  document.set("checksum", std::string(kDigits, '0'));
  std::string text = write_json(document) + "\n";
  if (text.size() > kMostText)
    fail(ANOCO_STORAGE, "a document of " + std::to_string(text.size()) +
                            " bytes would not be read again: at most " + std::to_string(kMostText) +
                            " are; nothing was changed");
  const auto digits = find_digits(text);
  if (!digits) fail(ANOCO_INTERNAL, "a document has no checksum");
  text.replace(*digits, kDigits, hash_without(text, *digits));
  return text;
}

}  // namespace anoco
