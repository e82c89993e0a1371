// Tables for people.

#pragma once

#include <string>
#include <vector>

namespace pinstripe {

// Down columns, padded to the widest cell; the last column as long as it likes.
std::string TableText(const std::vector<std::vector<std::string>>& rows);

}  // namespace pinstripe
