// RocksDB is not built for ThreadSanitizer, which does not see how its threads agree and takes that
// for races: in RocksDB itself, and where one thread writes another one's batch, a string, to the
// log.

#ifdef __SANITIZE_THREAD__
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:rocksdb::\n"
         "race:std::__cxx11::basic_string\n";
}
#endif
