//===- LineEditor.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "LineEditor.h"
#include <cerrno>
#include <iostream>
#include <termios.h>
#include <unistd.h>

namespace lathe::tool {
namespace {

/// Character-wise input without echo, while it lives.
class RawMode {
public:
  RawMode() {
    tcgetattr(0, &saved);
    termios raw = saved;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    tcsetattr(0, TCSADRAIN, &raw);
  }
  ~RawMode() { tcsetattr(0, TCSADRAIN, &saved); }

private:
  termios saved{};
};

bool continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

void write(const std::string &text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::write(1, text.data() + done, text.size() - done);
    if (n <= 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<size_t>(n);
  }
}

int readByte() {
  unsigned char c;
  ssize_t n;
  while ((n = ::read(0, &c, 1)) < 0 && errno == EINTR) {
  }
  return n == 1 ? c : -1;
}

struct Line {
  std::string text;
  size_t at = 0;
  void left() {
    if (at) --at;
    while (at && continuation(text[at]))
      --at;
  }
  void right() {
    if (at < text.size()) ++at;
    while (at < text.size() && continuation(text[at]))
      ++at;
  }
  void eraseLeft() {
    size_t end = at;
    left();
    text.erase(at, end - at);
  }
  void eraseRight() {
    size_t begin = at;
    right();
    text.erase(begin, at - begin);
    at = begin;
  }
  void eraseWord() {
    size_t end = at;
    while (at && text[at - 1] == ' ')
      --at;
    while (at && text[at - 1] != ' ')
      --at;
    text.erase(at, end - at);
  }
  void set(const std::string &value) {
    text = value;
    at = value.size();
  }
};

/// Draws the line: columns are characters, which is right for all but wide ones.
void draw(const std::string &prompt, const Line &line) {
  size_t behind = 0;
  for (size_t i = line.at; i < line.text.size(); ++i)
    behind += !continuation(line.text[i]);
  std::string out = "\r\x1b[K" + prompt + line.text;
  if (behind) out += "\x1b[" + std::to_string(behind) + "D";
  write(out);
}

} // namespace

std::optional<std::string> LineEditor::read(const std::string &prompt) {
  if (isatty(0) && isatty(1)) return edit(prompt);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

std::optional<std::string> LineEditor::edit(const std::string &prompt) {
  RawMode raw;
  Line line;
  size_t recall = history.size();
  draw(prompt, line);
  auto remember = [&](size_t index) {
    recall = index;
    line.set(index < history.size() ? history[index] : "");
  };
  while (true) {
    int c = readByte();
    switch (c) {
    case -1:
      return std::nullopt;
    case 4: // Ctrl-D
      if (line.text.empty()) {
        write("\n");
        return std::nullopt;
      }
      line.eraseRight();
      break;
    case '\r':
    case '\n':
      write("\n");
      if (!line.text.empty() && (history.empty() || history.back() != line.text)) history.push_back(line.text);
      return line.text;
    case 3: // Ctrl-C
      write("\n");
      return "";
    case 1:
      line.at = 0;
      break;
    case 5:
      line.at = line.text.size();
      break;
    case 11:
      line.text.erase(line.at);
      break;
    case 21:
      line.text.erase(0, line.at);
      line.at = 0;
      break;
    case 23:
      line.eraseWord();
      break;
    case 8:
    case 127:
      line.eraseLeft();
      break;
    case 27: { // an escape sequence: ESC [ parameters letter
      if (readByte() != '[') break;
      int key = readByte(), parameter = 0;
      while (key >= '0' && key <= '9') {
        parameter = (parameter * 10 + key - '0') % 1000;
        key = readByte();
      }
      if (key == 'A' && recall > 0) remember(recall - 1);
      if (key == 'B' && recall < history.size()) remember(recall + 1);
      if (key == 'C') line.right();
      if (key == 'D') line.left();
      if (key == 'H' || (key == '~' && parameter == 1)) line.at = 0;
      if (key == 'F' || (key == '~' && parameter == 4)) line.at = line.text.size();
      if (key == '~' && parameter == 3) line.eraseRight();
      break;
    }
    default:
      if (c < 32 && c != '\t') break;
      line.text.insert(line.at++, 1, static_cast<char>(c));
      if (c >= 0xc0) // the rest of a character comes at once
        for (int rest = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1; rest > 0; --rest)
          if (int next = readByte(); next >= 0) line.text.insert(line.at++, 1, static_cast<char>(next));
    }
    draw(prompt, line);
  }
}

} // namespace lathe::tool
