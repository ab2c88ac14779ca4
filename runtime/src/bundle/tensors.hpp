// Reads the safetensors files of a bundle. Anything that could lead to a wrong score is refused
// (ANOCO_BAD_BUNDLE, with the name of the file), as in Python.
#pragma once

#include <string>
#include <string_view>

#include "bundle/bundle.hpp"

namespace anoco {

// Checks that no row is zero. Norms are left to the scorer, which computes them anyway.
BankFile read_bank(Bytes bytes, const std::string& file);
// Checks that a bank belongs to this product and to a backbone with this input.
void check_bank(const BankFile& bank, const Product& product, const InputContract& input,
                const std::string& file);

// `input` is the product's tiled input.
BaselineGrid read_baseline(std::string_view bytes, double sigmas, const InputContract& input,
                           const std::string& file);

SelfTest read_selftest(std::string_view bytes, const InputContract& input, const std::string& file);

}  // namespace anoco
