// pinstripe-console: serves the page of a cluster, and the JSON behind it.

#include "console/main.h"

int main(int argc, char** argv) { return pinstripe::ConsoleMain(argc, argv); }
