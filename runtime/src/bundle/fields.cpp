#include "bundle/fields.hpp"

#include <algorithm>

#include "bundle/bytes.hpp"
#include "failure.hpp"

namespace anoco {
namespace {

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

void Field::refuse(const std::string& why) const {
  const std::string where = where_.empty() ? "the top" : where_;
  fail_damaged(*file_ + " is invalid at " + where + ": " + why);
}

Field Field::at(std::string_view part, const Json& json) const {
  return {json, *file_, (where_.empty() ? "" : where_ + ".") + std::string(part)};
}

std::string Field::text() const {
  const auto* found = json_->as<std::string>();
  if (found == nullptr) refuse("a text is expected");
  return *found;
}

bool Field::flag() const {
  const auto* found = json_->as<bool>();
  if (found == nullptr) refuse("true or false is expected");
  return *found;
}

int64_t Field::integer(int64_t least, int64_t most) const {
  const auto* found = json_->as<int64_t>();
  if (found == nullptr) refuse("an integer is expected");
  if (*found < least) refuse(std::to_string(*found) + " is less than " + std::to_string(least));
  if (*found > most) refuse(std::to_string(*found) + " is more than " + std::to_string(most));
  return *found;
}

double Field::number() const {
  if (const auto* integer = json_->as<int64_t>()) return static_cast<double>(*integer);
  const auto* found = json_->as<double>();
  if (found == nullptr) refuse("a number is expected");
  return *found;
}

double Field::at_least(double least) const {
  const double found = number();
  if (!(found >= least)) refuse(repr(found) + " is less than " + repr(least));
  return found;
}

double Field::above(double least) const {
  const double found = number();
  if (!(found > least)) refuse(repr(found) + " is not more than " + repr(least));
  return found;
}

std::string Field::sha256() const {
  const std::string found = text();
  if (found.size() != 64 || !std::all_of(found.begin(), found.end(), is_hex))
    refuse("64 hexadecimal digits are expected");
  return found;
}

size_t Field::choice(std::initializer_list<const char*> words) const {
  std::string known;
  size_t number = 0;
  for (const char* word : words) {
    if (const auto* found = json_->as<std::string>(); found && *found == word) return number;
    known += (number++ == 0 ? "" : ", ") + anoco::quoted(word);
  }
  refuse("one of " + known + " is expected");
}

std::vector<Field> Field::items() const {
  const auto* found = json_->as<Json::Array>();
  if (found == nullptr) refuse("a list is expected");
  std::vector<Field> fields;
  fields.reserve(found->size());
  for (const Json& item : *found) fields.push_back(at(std::to_string(fields.size()), item));
  return fields;
}

std::vector<Field> Field::items(size_t count) const {
  std::vector<Field> fields = items();
  if (fields.size() != count)
    refuse("a list of " + std::to_string(count) + " is expected, it has " +
           std::to_string(fields.size()));
  return fields;
}

Members::Members(const Field& object)
    : object_(object), members_(object.json().as<Json::Object>()) {
  if (members_ == nullptr) object.refuse("an object is expected");
}

Field Members::need(std::string_view key) {
  if (const auto found = maybe(key)) return *found;
  object_.at(key, object_.json()).refuse("it is missing");
}

std::optional<Field> Members::maybe(std::string_view key) {
  asked_.push_back(key);
  const Json* found = object_.json().find(key);
  if (found == nullptr) return std::nullopt;
  return object_.at(key, *found);
}

std::optional<Field> Members::unless_null(std::string_view key) {
  auto found = maybe(key);
  if (found && found->json().is_null()) return std::nullopt;
  return found;
}

void Members::finish() const {
  for (const auto& [key, member] : *members_)
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
      object_.at(key, member).refuse("nothing of that name is known here");
}

}  // namespace anoco
