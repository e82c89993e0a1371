#include "metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/program.h"

namespace pinstripe {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// The number that is word `number`, from 0, of a line in a file of /proc; 0: there is none.
double WordOf(const std::string& text, size_t number) {
  std::istringstream words(text);
  std::string word;
  for (size_t i = 0; i <= number; ++i) {
    if (!(words >> word)) return 0;
  }
  return std::strtod(word.c_str(), nullptr);
}

std::string LineOf(const char* path, const char* begin = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(begin)) return line;
  }
  return "";
}

// In seconds since 1970.
double StartTime() {
  // The name of the program stands in parentheses, and may hold spaces.
  const std::string stat = LineOf("/proc/self/stat");
  const size_t after_name = stat.rfind(')');
  if (after_name == std::string::npos) return 0;
  constexpr size_t kStartTime = 19;  // after the name
  const double ticks = WordOf(stat.substr(after_name + 1), kStartTime);
  const double booted = WordOf(LineOf("/proc/stat", "btime"), 1);
  return booted + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (error) return 0;
  return static_cast<double>(std::distance(begin(open), end(open)));
}

}  // namespace

void AddProcessMetrics(MetricsPage& page) {
  const ProgramName program = ThisProgram();
  page.Gauge("pinstripe_build_info", "1; the labels say which program this is.", 1,
             {{"program", program.name}, {"version", program.version}, {"detail", program.detail}});
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  page.Counter("process_cpu_seconds_total", "Time of processors, of the user and the system.",
               Seconds(use.ru_utime) + Seconds(use.ru_stime));
  page.Gauge("process_start_time_seconds", "When the process started, since 1970.", StartTime());
  constexpr size_t kResident = 1;
  const double pages = WordOf(LineOf("/proc/self/statm"), kResident);
  page.Gauge("process_resident_memory_bytes", "Memory that the process takes.",
             pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  page.Gauge("process_open_fds", "Descriptors that are open.", OpenDescriptors());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  page.Gauge("process_max_fds", "Descriptors that may be open.", limit.rlim_cur);
}

}  // namespace pinstripe
