// Checks what an ONNX graph contains before an engine loads it. The checks are those of
// anoco_edge/bundle/graph_file.py, which explains why they are made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "bundle/schema.hpp"

namespace anoco {

using SizesByName = std::map<std::string, int64_t, std::less<>>;

// Refuses (ANOCO_BAD_BUNDLE) a graph that takes weights from anywhere but itself and `data_files`,
// that has operators other than ONNX's own, graphs inside nodes or functions, or that does not
// declare the input and output of the contract. The file is read in pieces and its weights are
// skipped.
void check_graph(const std::filesystem::path& graph, const InputContract& contract,
                 const SizesByName& data_files);

// Does the same for a graph in memory; errors call it `name`.
void check_graph(std::string_view graph, const std::string& name, const InputContract& contract,
                 const SizesByName& data_files);

}  // namespace anoco
