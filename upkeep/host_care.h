// A host's care for its own files: it has those made whole that it committed while drives were away
// (upkeep/mender.h), and says on which drives a file is (upkeep/whereabouts.h). Given to
// FileSystemOptions::caretaker.

#pragma once

#include <memory>

#include "fs/caretaker.h"

namespace pinstripe {

MakeCaretaker MakeHostCare;

}  // namespace pinstripe
