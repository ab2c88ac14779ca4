// Whether a file is an ONNX graph at all. OpenVINO would try one format after the other on a file
// that is not, and some of them print.
#pragma once

namespace anoco {

// A graph is a protobuf message: fields one after the other up to the end, one of them the graph.
// Only their lengths are read. Else: ANOCO_BAD_BUNDLE.
void check_graph_file(const char* path);

}  // namespace anoco
