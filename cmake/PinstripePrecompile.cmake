# Precompiled headers for a build from nothing, which takes two thirds of the time with them. ccache
# finds less with them, and includes that are missing go unseen: so they are an option, for build servers.
set(precompiled_headers
  <algorithm> <array> <atomic> <cassert> <cerrno> <charconv> <chrono> <condition_variable> <cstdint> <deque>
  <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <shared_mutex> <span> <sstream>
  <string> <string_view> <thread> <utility> <vector>
  <fmt/format.h> <fmt/ranges.h> <tl/expected.hpp>)

# pinstripe_precompile(name HEADER...): a target whose headers others reuse.
function(pinstripe_precompile name)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc "")
  add_library(${name} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE pinstripe_options fmt::fmt tl::expected Threads::Threads)
  target_precompile_headers(${name} PRIVATE ${precompiled_headers} ${ARGN})
endfunction()

# Has all targets of a folder and those below it use them, but for those whose libraries define macros
# that change system headers.
function(pinstripe_reuse_precompiled name folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(NOT type MATCHES "LIBRARY|EXECUTABLE" OR type STREQUAL "INTERFACE_LIBRARY")
      continue()
    endif()
    if(target MATCHES "^(XrdOssPinstripe|pinstripe-fuse|pinstripe_fuse_operations|pinstripe_plugin_oss|oss_test|operations_test|faults|${name})$")
      continue()
    endif()
    target_precompile_headers(${target} REUSE_FROM ${name})
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    pinstripe_reuse_precompiled(${name} ${below})
  endforeach()
endfunction()
