// What pinstripe-console does.

#pragma once

namespace pinstripe {

int ConsoleMain(int argc, char** argv);

}  // namespace pinstripe
