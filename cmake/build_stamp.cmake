# cmake -D PREFIX=kWord -D OUTPUT=file -D FILES="a;b" -P build_stamp.cmake: a source file that says when and of
# what something was built. Of one file the hash is that of the file, of several that of their hashes.
# SOURCE_DATE_EPOCH in the environment is the time for those who need the same bytes twice.
string(TIMESTAMP date "%a %b %d %H:%M:%S UTC %Y" UTC)
list(LENGTH FILES count)
if(count EQUAL 1)
  file(SHA1 ${FILES} hash)
else()
  set(hashes)
  foreach(file IN LISTS FILES)
    file(SHA1 ${file} one)
    string(APPEND hashes "${one}\n")
  endforeach()
  string(SHA1 hash "${hashes}")
endif()
file(WRITE ${OUTPUT} "#include \"daemon/build_stamp.h\"

namespace pinstripe {

const char k${PREFIX}BuildDate[] = \"${date}\";
const char k${PREFIX}SourceHash[] = \"${hash}\";

}  // namespace pinstripe
")
