# One interface target with the language level, the warnings and the sanitizers, and one function per
# kind of target, so that a folder's CMakeLists.txt only says what is in it.
add_library(pinstripe_options INTERFACE)
target_compile_features(pinstripe_options INTERFACE cxx_std_20)
target_include_directories(pinstripe_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(pinstripe_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string that cannot be (GCC bug 105651).
  target_compile_options(pinstripe_options INTERFACE -Wno-restrict)
endif()
if(PINSTRIPE_WERROR)
  target_compile_options(pinstripe_options INTERFACE -Werror)
endif()
if(PINSTRIPE_SANITIZE)
  target_compile_options(pinstripe_options INTERFACE
    -fsanitize=${PINSTRIPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 sees through its own instrumentation badly: false alarms about std::optional.
    target_compile_options(pinstripe_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(pinstripe_options INTERFACE -fsanitize=${PINSTRIPE_SANITIZE})
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON)  # statement expressions (base/try.h)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Asserts stay on in every build: storage that stops is better than storage that lies.
foreach(type RELEASE RELWITHDEBINFO MINSIZEREL)
  string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_${type} "${CMAKE_CXX_FLAGS_${type}}")
endforeach()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
