#include "tools/drive_probe.h"

#include "base/try.h"
#include "cluster/ask_drives.h"
#include "cluster/connect.h"
#include "cluster/connecting.h"
#include "kinetic/io.h"

namespace pinstripe {

Result<std::map<DriveId, Result<DriveInfo>>> AskAllDrives(Runtime& runtime,
                                                          const ClusterConfig& config,
                                                          Duration patience) {
  KineticIo io(runtime);
  const DriveSet drives = TRY(MakeDrives(config, RealDriveFactory(io, patience), AnyDrive));
  return AskDrives<DriveInfo>::Run(
      runtime, drives,
      {.ask = [](Drive& drive, Time deadline,
                 Callback<DriveInfo> done) { drive.Info(deadline, std::move(done)); },
       .timeout = patience,
       .deadline = runtime.Now() + patience});
}

}  // namespace pinstripe
