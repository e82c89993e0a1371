// pinstriped: serves drives.

#include "drive/daemon_main.h"

int main(int argc, char** argv) { return pinstripe::DaemonMain(argc, argv); }
