// Checks whether a file is an ONNX graph. Given another file, OpenVINO tries one format after the
// other, and some of its readers print to the console.
#pragma once

namespace anoco {

// A graph is a protobuf message: fields follow each other up to the end of the file, and one of
// them is the graph. Only the lengths of the fields are read. Any other file is a Failure
// (ANOCO_BAD_BUNDLE).
void check_graph_file(const char* path);

}  // namespace anoco
