// From the bytes of a safetensors file to what a bundle keeps in one. What could turn into a wrong
// score is refused (ANOCO_BAD_BUNDLE, with the file's name), as in Python.
#pragma once

#include <string>
#include <string_view>

#include "bundle/bundle.hpp"

namespace anoco {

// Every row has a direction; norms are left to the scorer, which computes them anyway.
BankFile read_bank(Bytes bytes, const std::string& file);
// Whether it is a bank of this product, for a backbone with this input.
void check_bank(const BankFile& bank, const Product& product, const InputContract& input,
                const std::string& file);

// `canvas` is the product's.
BaselineGrid read_baseline(std::string_view bytes, double sigmas, const InputContract& input,
                           const std::string& file);

SelfTest read_selftest(std::string_view bytes, const InputContract& input, const std::string& file);

}  // namespace anoco
