# The four kinds of target that the rooms declare. Includes are root-relative everywhere
# ("server/engine/lane.h"); what protoc generates is included as "proto/session.pb.h".

set(ZEROD_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)

# Finds the headers beside the given sources and adds those named explicitly.
function(zerod_headers_of out_var)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS")
  set(headers ${arg_HEADERS})
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(REPLACE_EXTENSION source LAST_ONLY .h OUTPUT_VARIABLE header)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${header})
      list(APPEND headers ${header})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES headers)
  set(${out_var} ${headers} PARENT_SCOPE)
endfunction()

# LibTorch's headers take 10 s to parse, so whatever uses them shares one precompiled header, which
# zerod_autograd, the first of them, compiles. A target joins when one of its DEPS has joined.
define_property(TARGET PROPERTY ZEROD_USES_TORCH)
function(zerod_torch_headers name)
  foreach(dep IN LISTS ARGN)
    set(uses FALSE)
    if(TARGET ${dep})
      get_target_property(uses ${dep} ZEROD_USES_TORCH)
    endif()
    if(uses)
      set_target_properties(${name} PROPERTIES ZEROD_USES_TORCH TRUE)
      if(TARGET zerod_autograd AND NOT name STREQUAL zerod_autograd)
        target_precompile_headers(${name} REUSE_FROM zerod_autograd)
      endif()
      return()
    endif()
  endforeach()
endfunction()

# zerod_library(NAME [SOURCES a.cc ...] [HEADERS b.h ...] [DEPS target ...])
# A static library, or an interface library if it has no sources. The header beside each source
# belongs to it without being named; HEADERS lists the others. DEPS are public.
function(zerod_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DEPS")
  if(arg_SOURCES)
    set(scope PUBLIC)
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:zerod_flags>)
    zerod_torch_headers(${name} ${arg_DEPS})
  else()
    set(scope INTERFACE)
    add_library(${name} INTERFACE)
  endif()
  zerod_headers_of(headers SOURCES ${arg_SOURCES} HEADERS ${arg_HEADERS})
  # The file set also puts the root of the tree on the include path, and lets CMake compile every
  # header alone (tests/lint.sh).
  target_sources(${name} ${scope}
    FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  target_link_libraries(${name} ${scope} ${arg_DEPS} Threads::Threads)
endfunction()

# Under ThreadSanitizer every executable shows it what Debian's libabsl synchronises; the object
# library comes from tests/.
function(zerod_sanitized name)
  if(ZEROD_SANITIZE STREQUAL "thread")
    target_link_libraries(${name} PRIVATE zerod_absl_mutex)
  endif()
endfunction()

# zerod_program(NAME SOURCES main.cc ... [DEPS target ...])
# An executable in build/bin.
function(zerod_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE zerod_flags ${arg_DEPS} Threads::Threads)
  zerod_torch_headers(${name} ${arg_DEPS})
  zerod_sanitized(${name})
endfunction()

# zerod_test(NAME SOURCES a_test.cc ... [DEPS target ...] [PROGRAMS target ...] [LABELS l ...]
#            [DEFINES NAME=value ...] [TIMEOUT seconds] [SERIAL])
# One GoogleTest program in build/tests and one line of ctest for it. PROGRAMS are executables of
# ours that the test starts: they are built before it, and it finds each path in the definition
# ZEROD_PROGRAM_<NAME> (upper case, - as _). SERIAL keeps ctest from running anything beside it;
# give it to tests that measure time or start more processes than there are cores. A list that runs
# such tests asks if(ZEROD_WORKER) where they need LibTorch: sanitizer builds have none.
function(zerod_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT"
    "SOURCES;DEPS;PROGRAMS;LABELS;DEFINES")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE zerod_flags ${arg_DEPS} GTest::gmock_main GTest::gmock
    Threads::Threads)
  zerod_torch_headers(${name} ${arg_DEPS})
  zerod_sanitized(${name})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINES})
  foreach(program IN LISTS arg_PROGRAMS)
    string(TOUPPER ${program} definition)
    string(REPLACE "-" "_" definition ${definition})
    target_compile_definitions(${name} PRIVATE
      ZEROD_PROGRAM_${definition}="$<TARGET_FILE:${program}>")
    add_dependencies(${name} ${program})
  endforeach()
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(ZEROD_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# zerod_proto_library(NAME PROTOS a.proto ...)
# Messages and gRPC services of the given files, which import each other from the root of the tree.
function(zerod_proto_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PROTOS")
  set(sources "")
  foreach(proto IN LISTS arg_PROTOS)
    cmake_path(ABSOLUTE_PATH proto OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE relative)
    cmake_path(REMOVE_EXTENSION relative OUTPUT_VARIABLE stem)
    set(base ${ZEROD_GENERATED_DIR}/${stem})
    set(outputs ${base}.pb.cc ${base}.pb.h ${base}.grpc.pb.cc ${base}.grpc.pb.h)
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${ZEROD_GENERATED_DIR}
      COMMAND protobuf::protoc
        --proto_path=${PROJECT_SOURCE_DIR}
        --cpp_out=${ZEROD_GENERATED_DIR}
        --grpc_out=${ZEROD_GENERATED_DIR}
        --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>
        ${relative}
      # A change in any file of the library regenerates all of it: they import each other.
      DEPENDS ${arg_PROTOS}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      COMMENT "Generating ${stem}.pb and ${stem}.grpc.pb"
      VERBATIM)
    list(APPEND sources ${outputs})
  endforeach()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} SYSTEM PUBLIC ${ZEROD_GENERATED_DIR})
  target_compile_options(${name} PRIVATE -w)
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf gRPC::grpc++ Threads::Threads)
endfunction()
