// An exception that is no std::exception, thrown in the middle of fake_openvino.c.
extern "C" void throw_number() { throw 42; }
