#include "console/page_files.h"

#include <openssl/sha.h>

#include <array>
#include <filesystem>

#include "base/bytes.h"
#include "base/read_file.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes{{
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".json", "application/json"},
    {".svg", "image/svg+xml"},
}};

std::string TagOf(const std::string& body) {
  std::array<std::byte, SHA256_DIGEST_LENGTH> hash{};
  SHA256(reinterpret_cast<const unsigned char*>(body.data()), body.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return fmt::format("\"{}\"", Hex(Bytes(hash).first(16)));
}

}  // namespace

Result<PageFiles> PageFiles::Load(const std::string& directory) {
  PageFiles page;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(directory, failed)) {
    const std::string name = entry.path().filename();
    for (const auto& [ending, type] : kTypes) {
      if (entry.path().extension() != ending) continue;
      PageFile file;
      file.type = type;
      file.body = TRY(ReadFile(entry.path()));
      file.tag = TagOf(file.body);
      page.files_["/" + name] = std::move(file);
    }
  }
  if (failed) {
    return Fail(failed.value(), "the page's directory {}: {}", directory,
                ErrnoText(failed.value()));
  }
  const auto index = page.files_.find("/index.html");
  if (index == page.files_.end()) {
    return Fail(ENOENT, "there is no index.html in {}: --page names the page's directory",
                directory);
  }
  page.files_["/"] = index->second;
  return page;
}

const PageFile* PageFiles::Find(std::string_view path) const {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : &found->second;
}

}  // namespace pinstripe
