# What makes a build from nothing take a third of the time: precompiled headers, and several files compiled as one.
# ccache finds less with them, and includes that are missing go unseen: so they are an option, for build servers.
set(precompiled_headers
  <algorithm> <array> <atomic> <cassert> <cerrno> <charconv> <chrono> <condition_variable> <cstdint> <deque>
  <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <shared_mutex> <span> <sstream>
  <string> <string_view> <thread> <utility> <vector>
  <fmt/format.h> <fmt/ranges.h> <tl/expected.hpp>)

# Libraries that define macros which change system headers, or take none that these headers need.
set(not_precompiled pinstripe_kinetic_proto pinstripe_etcd_proto XrdOssPinstripe PinstripeCrc32c)

# Those that are compiled alone, as they give a name in their anonymous namespace, a macro or a system's header that
# another file of their folder has, too. Who adds such a file meets "redefinition" or "ambiguous" on the build server,
# and finds another name or adds the file here.
set(compiled_alone
  cluster/map/drive_map.cc cluster/membership/epoch_change.cc cluster/membership/newcomer.cc
  cluster/registers/eraser.cc cluster/registers/sweep.cc cluster/stripes/listing.cc cluster/stripes/shard.cc
  fs/files/taking_over.cc fs/names/rename.cc kinetic/slow_operations.cc store/drive_mark.cc
  store/index_files.cc store/log_entry.cc store/rocksdb_database.cc store/starts.cc store/starts_file.cc
  tests/cluster/stripes/repair_test.cc tests/cluster/stripes/store_test.cc tests/daemon/attacker.cc
  tests/daemon/long_operation_test.cc tests/daemon/security_test.cc tests/daemon/server_test.cc
  tests/daemon/session_gate_test.cc tests/fs/cache/disk_cache_test.cc tests/fs/files/merge_test.cc
  tests/fs/names/names_test.cc
  tests/fuzz/wire_test.cc tests/kinetic/kinetic_drive_test.cc tests/store/store_test.cc
  tests/tidy/shape_test.cc tests/tidy/tidy_test.cc tests/tools/site_test.cc tests/upkeep/fill_history_test.cc
  tests/upkeep/slow_report_test.cc tests/upkeep/work_test.cc tools/command_dev.cc tools/command_join.cc
  tools/command_slow.cc tools/doctor.cc tools/drive_load.cc tools/long_work.cc tools/names_load.cc
  tools/process_use.cc tools/site_authority.cc tools/site_plan.cc tools/site_texts.cc upkeep/checker_data.cc
  upkeep/events.cc upkeep/fill_history.cc upkeep/repairer.cc upkeep/slow_report_text.cc upkeep/survey_json.cc
  upkeep/tree_check.cc upkeep/work.cc)

# A program gets of these the files that it needs: the preloaded CRC library is to have no more than that.
set(not_together pinstripe_base)

# Links a test in half the time of the usual linker. Debian's binutils bring both.
find_program(PINSTRIPE_GOLD ld.gold)

# pinstripe_compile_together(folder): has targets of a folder and those below it compile several files as one.
function(pinstripe_compile_together folder)
  if(PINSTRIPE_TOGETHER EQUAL 1)
    return()
  endif()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(its_type ${target} TYPE)
    if(its_type STREQUAL "EXECUTABLE" AND PINSTRIPE_GOLD)
      target_link_options(${target} PRIVATE -fuse-ld=gold)
    endif()
    if(its_type MATCHES "UTILITY|INTERFACE" OR target IN_LIST not_precompiled OR target IN_LIST not_together)
      continue()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${PINSTRIPE_TOGETHER})
    # GCC takes the files that are included for headers, whose anonymous namespaces would differ by file.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
      if(path IN_LIST compiled_alone)
        set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    pinstripe_compile_together(${below})
  endforeach()
endfunction()

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
       AND NOT target IN_LIST busy_tests AND NOT libraries MATCHES "FUSE3|XRootD|HIREDIS"
       AND (type STREQUAL "STATIC_LIBRARY" OR libraries MATCHES "GTest"))
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
