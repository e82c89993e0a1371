# Precompiled headers for a build from nothing, which takes two thirds of the time with them. ccache
# finds less with them, and includes that are missing go unseen: so they are an option, for build servers.
set(precompiled_headers
  <algorithm> <array> <atomic> <cassert> <cerrno> <charconv> <chrono> <condition_variable> <cstdint> <deque>
  <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <shared_mutex> <span> <sstream>
  <string> <string_view> <thread> <utility> <vector>
  <fmt/format.h> <fmt/ranges.h> <tl/expected.hpp>)

# Libraries that define macros which change system headers, or take none that these headers need.
set(not_precompiled pinstripe_kinetic_proto XrdOssPinstripe PinstripeCrc32c)

# pinstripe_precompile(TYPE name HEADER...): a target whose headers others of its type reuse. GCC
# compiles those of programs (-fPIE) and of libraries (-fPIC) apart.
function(pinstripe_precompile type name)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  if(type STREQUAL "EXECUTABLE")
    file(WRITE ${source} "int main() {}\n")
    add_executable(${name} ${source})
  else()
    file(WRITE ${source} "")
    add_library(${name} STATIC ${source})
  endif()
  target_link_libraries(${name} PRIVATE pinstripe_options fmt::fmt tl::expected Threads::Threads)
  target_precompile_headers(${name} PRIVATE ${precompiled_headers} ${ARGN})
endfunction()

# Has all such targets of a folder and those below it use them.
function(pinstripe_reuse_precompiled type name folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(its_type ${target} TYPE)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    if(its_type STREQUAL ${type} AND NOT target STREQUAL ${name} AND NOT target IN_LIST not_precompiled
       AND NOT libraries MATCHES "FUSE3|XRootD" AND (type STREQUAL "STATIC_LIBRARY" OR libraries MATCHES "GTest"))
      target_precompile_headers(${target} REUSE_FROM ${name})
      # GCC 12 sees bounds that are not there in inlined strings, more so with these.
      target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    pinstripe_reuse_precompiled(${type} ${name} ${below})
  endforeach()
endfunction()
