//===- Strftime.cpp - printing a moment -------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Strftime.h"
#include <chrono>
#include <ctime>

namespace lathe {

CivilTime CivilTime::now() {
  auto moment = std::chrono::system_clock::now();
  auto micros = std::chrono::duration_cast<std::chrono::microseconds>(moment.time_since_epoch()).count();
  time_t seconds = std::chrono::system_clock::to_time_t(moment);
  std::tm tm = {};
  localtime_r(&seconds, &tm);
  return {tm.tm_year + 1900,
          tm.tm_mon + 1,
          tm.tm_mday,
          tm.tm_hour,
          tm.tm_min,
          tm.tm_sec,
          static_cast<int>((micros % 1000000 + 1000000) % 1000000)};
}

namespace jinja {
namespace {

const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                              "July",    "August",   "September", "October", "November", "December"};

bool isLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int dayOfYear(const CivilTime &t) { // 1 is January 1st
  static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return before[(t.month - 1) % 12] + t.day + (t.month > 2 && isLeap(t.year));
}

int weekday(int year, int yearDay) { // 0 is Sunday
  int y = year - 1;
  return (y + y / 4 - y / 100 + y / 400 + yearDay) % 7;
}

int weeksIn(int year) {
  int first = weekday(year, 1);
  return first == 4 || (first == 3 && isLeap(year)) ? 53 : 52;
}

void isoWeek(int year, int yearDay, int &isoYear, int &week) {
  int monday = (weekday(year, yearDay) + 6) % 7;
  isoYear = year;
  week = (yearDay - monday + 9) / 7;
  if (week < 1)
    week = weeksIn(--isoYear);
  else if (week > weeksIn(year)) {
    week = 1;
    ++isoYear;
  }
}

} // namespace

std::string formatTime(const CivilTime &t, std::string_view format) {
  std::string out;
  auto number = [&](int value, int width, char pad = '0') {
    std::string digits = std::to_string(value);
    if (static_cast<int>(digits.size()) < width) out.append(width - digits.size(), pad);
    out += digits;
  };
  int yearDay = dayOfYear(t), day = weekday(t.year, yearDay), isoYear, week;
  isoWeek(t.year, yearDay, isoYear, week);
  int hour12 = t.hour % 12 ? t.hour % 12 : 12;
  const char *month = months[(t.month - 1) % 12];
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    char c = format[++i];
    // glibc: %-d prints no padding.
    bool bare = c == '-' && i + 1 < format.size();
    if (bare) c = format[++i];
    auto two = [&](int value) { number(value, bare ? 1 : 2); };
    switch (c) {
    case 'a':
      out.append(weekdays[day], 3);
      break;
    case 'A':
      out += weekdays[day];
      break;
    case 'b':
    case 'h':
      out.append(month, 3);
      break;
    case 'B':
      out += month;
      break;
    case 'c':
      out += formatTime(t, "%a %b %e %H:%M:%S %Y");
      break;
    case 'C':
      two(t.year / 100);
      break;
    case 'd':
      two(t.day);
      break;
    case 'D':
    case 'x':
      out += formatTime(t, "%m/%d/%y");
      break;
    case 'e':
      number(t.day, bare ? 1 : 2, ' ');
      break;
    case 'f':
      number(t.microsecond, 6);
      break;
    case 'F':
      out += formatTime(t, "%Y-%m-%d");
      break;
    case 'g':
      two(isoYear % 100);
      break;
    case 'G':
      number(isoYear, 1);
      break;
    case 'H':
      two(t.hour);
      break;
    case 'I':
      two(hour12);
      break;
    case 'j':
      number(yearDay, bare ? 1 : 3);
      break;
    case 'k':
      number(t.hour, bare ? 1 : 2, ' ');
      break;
    case 'l':
      number(hour12, bare ? 1 : 2, ' ');
      break;
    case 'm':
      two(t.month);
      break;
    case 'M':
      two(t.minute);
      break;
    case 'n':
      out += '\n';
      break;
    case 'p':
      out += t.hour < 12 ? "AM" : "PM";
      break;
    case 'P':
      out += t.hour < 12 ? "am" : "pm";
      break;
    case 'r':
      out += formatTime(t, "%I:%M:%S %p");
      break;
    case 'R':
      out += formatTime(t, "%H:%M");
      break;
    case 'S':
      two(t.second);
      break;
    case 't':
      out += '\t';
      break;
    case 'T':
    case 'X':
      out += formatTime(t, "%H:%M:%S");
      break;
    case 'u':
      number(day ? day : 7, 1);
      break;
    case 'U':
      two((yearDay - 1 + 7 - day) / 7);
      break;
    case 'V':
      two(week);
      break;
    case 'w':
      number(day, 1);
      break;
    case 'W':
      two((yearDay - 1 + 7 - (day + 6) % 7) / 7);
      break;
    case 'y':
      two(t.year % 100);
      break;
    case 'Y':
      number(t.year, 1);
      break;
    case 'z':
    case 'Z':
      break; // no time zone
    case '%':
      out += '%';
      break;
    default:
      out += '%';
      if (bare) out += '-';
      out += c;
    }
  }
  return out;
}

} // namespace jinja
} // namespace lathe
