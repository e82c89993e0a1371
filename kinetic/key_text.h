// Keys for people: what a record of a Pinstripe cluster is, for lines of the log. docs/format.md,
// "Keys", has their forms.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pinstripe {

// "shard 3 of block 7 of object 9d13f83a2abd1d4d", "register 38/I:bb449dae062d20cd", "superblock";
// of a key of another form its bytes, in hexadecimal and not all where there are many.
std::string KeyText(std::string_view key);

// "register 38/I:bb449dae062d20cd", "register 9/E:0000000000000001/name": a letter, a number and
// text, as the keys of registers are; anything else as text.
std::string RegisterText(uint32_t group, std::string_view key);

}  // namespace pinstripe
