// Reads a JSON document along its schema. A value that is missing, unknown, of another type or out
// of range is refused together with its place in the document, as pydantic does in Python.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/json.hpp"

namespace anoco {

// One value and its place in the document.
class Field {
 public:
  Field(const Json& json, const std::string& file, std::string where = "")
      : json_(&json), file_(&file), where_(std::move(where)) {}

  // Throws ANOCO_BAD_BUNDLE with the text "FILE is invalid at WHERE: ...".
  [[noreturn]] void refuse(const std::string& why) const;

  const Json& json() const { return *json_; }
  Field at(std::string_view part, const Json& json) const;

  std::string text() const;
  bool flag() const;
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  double number() const;  // an integer is one too
  double at_least(double least) const;
  double above(double least) const;
  std::string sha256() const;
  // Returns the index of the word that the value equals.
  size_t choice(std::initializer_list<const char*> words) const;
  std::vector<Field> items() const;
  std::vector<Field> items(size_t count) const;

 private:
  const Json* json_;
  const std::string* file_;
  std::string where_;
};

// The members of an object. Each member is asked for once; `finish` refuses members that nobody
// asked for.
class Members {
 public:
  explicit Members(const Field& object);

  Field need(std::string_view key);
  std::optional<Field> maybe(std::string_view key);
  // Does the same, but treats null as missing.
  std::optional<Field> unless_null(std::string_view key);
  void finish() const;

 private:
  Field object_;
  const Json::Object* members_;
  std::vector<std::string_view> asked_;
};

}  // namespace anoco
