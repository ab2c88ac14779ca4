// Reads PTX: declarations and statements. decode.cpp makes instructions of them.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "decode.hpp"
#include "lexer.hpp"

namespace ptx {

struct Module::Contents {
  std::string name;
  std::vector<std::string> lines;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
  std::vector<std::unique_ptr<std::vector<uint64_t>>> variables;
  std::map<std::string, uint64_t> symbols;
  std::vector<std::pair<const void*, size_t>> places;  // of the variables
};

namespace {

class Parser {
 public:
  Parser(const std::string& text, Module::Contents& into)
      : into_(into), tokens_(tokens_of(text, into.name)) {}

  void parse() {
    while (!ends()) {
      const std::string word = next().text;
      if (word == ".version" || word == ".target" || word == ".address_size" || word == ".file")
        skip_line();
      else if (word == ".entry")
        entry();
      else if (word == ".global" || word == ".const" || word == ".shared")
        variable(word, nullptr);
      else if (word != ".visible" && word != ".extern" && word != ".weak")
        refuse("does not understand " + word);
    }
  }

 private:
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool ends() const { return peek().kind == Token::end; }
  bool take(const std::string& text) {
    if (ends() || peek().text != text) return false;
    next();
    return true;
  }
  void expect(const std::string& text) {
    if (!take(text)) refuse("expects " + text);
  }
  void skip_line() {
    for (const uint32_t line = tokens_[at_ - 1].line; !ends() && peek().line == line;) next();
  }
  void skip_statement() {
    while (!ends() && !take(";")) next();
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Fault(into_.name + ", line " + std::to_string(peek().line) + ": " + why);
  }
  uint64_t number() {
    const bool minus = take("-");
    if (peek().kind != Token::number) refuse("expects a number");
    const uint64_t bits = next().bits;
    return minus ? 0 - bits : bits;
  }

  // .align 8 .b8 name[8384] = {...}
  struct Declared {
    std::string name;
    size_t bytes = 0, align = 1, element = 1;
    bool open = false;  // name[]
  };
  Declared declared() {
    Declared out;
    bool aligned = false, pointer = false;
    while (peek().text[0] == '.') {
      const std::string word = next().text;
      pointer = pointer || word == ".ptr";
      if (word == ".align") {
        const size_t bytes = size_t(number());
        if (pointer) continue;  // of what it points at
        out.align = bytes;
        aligned = true;
      } else if (type_of(word.substr(1)).bytes != 0) {
        out.element = type_of(word.substr(1)).bytes;
      }
    }
    if (!aligned) out.align = out.element;
    out.name = next().text;
    size_t count = 1;
    while (take("[")) {
      out.open = peek().text == "]";
      if (!out.open) count *= size_t(number());
      expect("]");
    }
    out.bytes = count * out.element;
    return out;
  }

  static size_t place(size_t& end, const Declared& what) {
    const size_t at = (end + what.align - 1) / what.align * what.align;
    end = at + what.bytes;
    return at;
  }

  void variable(const std::string& space, Decoder* decoder) {
    const Declared what = declared();
    uint64_t address = 0;
    if (space == ".shared") {
      size_t& end = kernel_ != nullptr ? kernel_->shared_bytes : shared_;
      address = what.open ? kDynamicShared : place(end, what);
    } else if (space == ".local") {
      address = place(kernel_->local_bytes, what);
    } else {
      into_.variables.push_back(std::make_unique<std::vector<uint64_t>>(what.bytes / 8 + 1));
      char* memory = reinterpret_cast<char*>(into_.variables.back()->data());
      address = reinterpret_cast<uintptr_t>(memory);
      into_.places.emplace_back(memory, what.bytes);
      if (take("=")) initialize(memory, what);
    }
    expect(";");
    if (decoder != nullptr)
      decoder->declare_symbol(what.name, address);
    else
      into_.symbols[what.name] = address;
  }

  void initialize(char* memory, const Declared& what) {
    const bool many = take("{");
    for (size_t at = 0; at < what.bytes && peek().text != "}" && peek().text != ";";
         at += what.element) {
      const uint64_t bits = number();
      std::memcpy(memory + at, &bits, what.element);
      if (!take(",")) break;
    }
    if (many) expect("}");
  }

  void entry() {
    auto made = std::make_unique<Kernel>();
    kernel_ = made.get();
    kernel_->name = next().text;
    kernel_->file = into_.name;
    kernel_->lines = &into_.lines;
    kernel_->shared_bytes = shared_;
    Decoder decoder(*kernel_, into_.symbols);
    if (take("("))
      while (!take(")")) {
        expect(".param");
        const Declared what = declared();
        const size_t at = place(kernel_->parameter_bytes, what);
        kernel_->parameters.push_back({at, what.bytes});
        decoder.declare_symbol(what.name, at);
        take(",");
      }
    while (!ends() && peek().text != "{") {
      const std::string word = next().text;
      if (word != ".maxntid") continue;
      kernel_->most_threads = uint32_t(number());
      while (take(",")) kernel_->most_threads *= uint32_t(number());
    }
    body(decoder);
    kernel_->shared_bytes = (kernel_->shared_bytes + 15) / 16 * 16;
    decoder.finish();
    into_.kernels[kernel_->name] = std::move(made);
    kernel_ = nullptr;
  }

  void body(Decoder& decoder) {
    expect("{");
    size_t depth = 1;
    while (depth > 0) {
      if (ends()) refuse("a body without an end");
      if (take("{")) {
        decoder.open_scope();
        ++depth;
      } else if (take("}")) {
        if (--depth > 0) decoder.close_scope();
      } else if (take(".reg")) {
        registers(decoder);
      } else if (peek().text == ".shared" || peek().text == ".local") {
        const std::string space = next().text;
        variable(space, &decoder);
      } else if (take(".pragma")) {
        skip_statement();
      } else if (take(".loc")) {
        skip_line();
      } else if (peek(1).text == ":") {
        label(decoder);
      } else if (!take(";")) {
        decoder.add(statement());
      }
    }
  }

  void registers(Decoder& decoder) {
    const std::string type = next().text;
    do {
      const Token name = next();
      if (!take("<")) {
        decoder.declare_register(name.text, type, name.line);
        continue;
      }
      const uint64_t count = number();
      expect(">");
      for (uint64_t k = 0; k < count; ++k)
        decoder.declare_register(name.text + std::to_string(k), type, name.line);
    } while (take(","));
    expect(";");
  }

  void label(Decoder& decoder) {
    const std::string name = next().text;
    expect(":");
    if (!take(".branchtargets")) {
      decoder.set_label(name);
      return;
    }
    std::vector<std::string> labels;
    do labels.push_back(next().text);
    while (take(","));
    expect(";");
    decoder.set_targets(name, labels);
  }

  Statement statement() {
    Statement out;
    out.line = peek().line;
    if (take("@")) {
      out.has_predicate = true;
      out.predicate.inverted = take("!");
      out.predicate.text = next().text;
    }
    out.opcode = next().text;
    std::stringstream words(out.opcode);
    for (std::string word; std::getline(words, word, '.');) out.words.push_back(word);
    while (!take(";")) {
      if (ends()) refuse("a statement without an end");
      out.terms.push_back(term());
      take(",");
    }
    return out;
  }

  Term term() {
    Term out;
    if (take("{")) {
      out.kind = Term::list;
      while (!take("}")) {
        out.parts.push_back(term());
        take(",");
      }
    } else if (take("[")) {
      out.kind = Term::address;
      if (peek().kind == Token::word) out.text = next().text;
      while (!take("]")) {
        take("+");
        out.offset += int64_t(number());
      }
    } else if (peek().kind == Token::number || peek().text == "-") {
      out.kind = Term::number;
      out.bits = number();
    } else {
      out.inverted = take("!");
      if (peek().kind != Token::word) refuse("does not understand " + peek().text);
      out.text = next().text;
      if (take("|")) out.second = next().text;
    }
    return out;
  }

  Module::Contents& into_;
  std::vector<Token> tokens_;
  size_t at_ = 0, shared_ = 0;
  Kernel* kernel_ = nullptr;
};

}  // namespace

Module::Module(const std::string& text, const std::string& name)
    : contents_(std::make_unique<Contents>()) {
  contents_->name = name;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) contents_->lines.push_back(line);
  contents_->lines.emplace_back();
  Parser(text, *contents_).parse();
  for (auto& [unused, kernel] : contents_->kernels) kernel->variables = contents_->places;
}

Module::~Module() = default;

const Kernel* Module::find(const std::string& name) const {
  const auto found = contents_->kernels.find(name);
  return found == contents_->kernels.end() ? nullptr : found->second.get();
}

std::vector<const Kernel*> Module::kernels() const {
  std::vector<const Kernel*> out;
  for (const auto& [name, kernel] : contents_->kernels) out.push_back(kernel.get());
  return out;
}

}  // namespace ptx
