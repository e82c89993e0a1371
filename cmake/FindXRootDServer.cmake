# XRootD's server libraries, for plugins: XRootD::Server, and XRootDServer_PLUGIN_VERSION, the number
# that the name of a plugin carries. The package configuration of XRootD 5 has no targets.
find_package(XRootD QUIET COMPONENTS UTILS SERVER)
set(XRootDServer_PLUGIN_VERSION ${XROOTD_PLUGIN_VERSION})
if(NOT XRootDServer_PLUGIN_VERSION)
  set(XRootDServer_PLUGIN_VERSION ${XRootD_PLUGIN_VERSION})  # since XRootD 6
endif()
set(XRootDServer_INCLUDE_DIRS ${XROOTD_INCLUDE_DIRS})
list(FILTER XRootDServer_INCLUDE_DIRS EXCLUDE REGEX "/private$")  # public headers are enough
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(XRootDServer REQUIRED_VARS
  XROOTD_SERVER_LIBRARIES XROOTD_UTILS_LIBRARIES XRootDServer_INCLUDE_DIRS
  XRootDServer_PLUGIN_VERSION)
if(XRootDServer_FOUND AND NOT TARGET XRootD::Server)
  add_library(XRootD::Server INTERFACE IMPORTED)
  set_target_properties(XRootD::Server PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${XRootDServer_INCLUDE_DIRS}"
    INTERFACE_LINK_LIBRARIES "${XROOTD_SERVER_LIBRARIES};${XROOTD_UTILS_LIBRARIES}")
endif()
