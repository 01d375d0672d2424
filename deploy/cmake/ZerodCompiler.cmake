# Language level, build type, warnings and sanitizers: the flags every target of ours shares.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Programs and libraries share a precompiled header, which works only with equal flags.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# -g1 keeps line numbers in stack traces at a fraction of the compile and link time of -g. NDEBUG
# stays unset: our checks don't depend on it, and assertions of libraries are worth their price.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

# Only our own targets get these (zerod_library and friends link the target below); generated code
# and the headers of other projects don't.
add_library(zerod_flags INTERFACE)
# "omp simd" vectorizes a loop of unknown length also at -O2; no OpenMP runtime comes with it.
target_compile_options(zerod_flags INTERFACE
  -fopenmp-simd
  -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual
  -Werror=return-type -Werror=reorder -Werror=switch -Werror=uninitialized -Werror=unused-result)
if(ZEROD_WERROR)
  target_compile_options(zerod_flags INTERFACE -Werror)
endif()

if(ZEROD_FAILPOINTS)
  target_compile_definitions(zerod_flags INTERFACE ZEROD_FAILPOINTS=1)
endif()

if(ZEROD_SANITIZE STREQUAL "address")
  add_compile_options(
    -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(ZEROD_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT ZEROD_SANITIZE STREQUAL "")
  message(FATAL_ERROR "ZEROD_SANITIZE is '${ZEROD_SANITIZE}'; it must be empty, address or thread")
endif()
