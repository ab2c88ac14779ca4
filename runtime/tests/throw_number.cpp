// Throws an exception that is not a std::exception, from the middle of fake_openvino.c.
extern "C" void throw_number() { throw 42; }
