// Reads JSON strictly as RFC 8259 defines it, and writes the text that Python's json.dumps would
// write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace anoco {

struct Json {
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of the text

  // Integers stay exact: a number without fraction and exponent is an int64_t.
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value;

  Json();
  // These are not inline, because GCC 12 warns about the code that it generates for std::variant.
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  Json(std::nullptr_t) {}
  Json(bool v) : value(v) {}
  Json(int v) : value(int64_t{v}) {}
  Json(int64_t v) : value(v) {}
  Json(double v) : value(v) {}
  Json(const char* v) : value(std::string(v)) {}
  Json(std::string v) : value(std::move(v)) {}
  Json(Array v) : value(std::move(v)) {}
  Json(Object v) : value(std::move(v)) {}

  bool is_null() const { return value.index() == 0; }
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&value);
  }

  // Returns a member of an object, or nullptr if there is no such member or this is not an object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  // Replaces a member or appends it. This value must be an object.
  void set(std::string_view key, Json member);
};

// Refuses (ANOCO_BAD_BUNDLE, with the byte offset) everything that RFC 8259 forbids or leaves open:
// duplicate keys, NaN, numbers that fit neither int64_t nor double, text that is not UTF-8, lone
// surrogates, and more than 64 nested lists and objects. Messages call the text `name`.
Json parse_json(std::string_view text, const std::string& name);

// Returns the bytes of json.dumps(value, indent=1, ensure_ascii=False). A double that is not finite
// is a Failure (ANOCO_INTERNAL), because JSON cannot represent it.
std::string write_json(const Json& value);

// Writes a double as Python's repr does: the shortest text that reads back as the same number.
std::string repr(double number);

}  // namespace anoco
