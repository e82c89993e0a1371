// pinstriped: serves drives.

#include "daemon/main.h"

int main(int argc, char** argv) { return pinstripe::DaemonMain(argc, argv); }
