# The libraries of others. All but LibTorch are Debian packages (deploy/install-deps.sh).

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(Gloo CONFIG REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)

if(NOT TARGET Gloo::gloo)
  add_library(Gloo::gloo ALIAS gloo)
endif()

if(ZEROD_WORKER)
  if(NOT EXISTS ${ZEROD_LIBTORCH_DIR}/torch/lib/libtorch_cpu.so)
    message(FATAL_ERROR
      "ZEROD_LIBTORCH_DIR ('${ZEROD_LIBTORCH_DIR}') holds no torch/lib/libtorch_cpu.so. "
      "Run deploy/install-deps.sh and pass the folder that it prints, "
      "or configure with -DZEROD_WORKER=OFF to build without the LibTorch worker.")
  endif()
  # The wheel ships its own fmt and protobuf headers under torch/include. -idirafter puts them
  # behind Debian's, so that they can't shadow them.
  add_library(torch::cpu INTERFACE IMPORTED)
  set_target_properties(torch::cpu PROPERTIES ZEROD_USES_TORCH TRUE)
  target_compile_options(torch::cpu INTERFACE
    "SHELL:-idirafter ${ZEROD_LIBTORCH_DIR}/torch/include"
    "SHELL:-idirafter ${ZEROD_LIBTORCH_DIR}/torch/include/torch/csrc/api/include")
  target_compile_definitions(torch::cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  foreach(library torch_cpu c10)
    add_library(torch::${library} SHARED IMPORTED)
    set_target_properties(torch::${library} PROPERTIES
      IMPORTED_LOCATION ${ZEROD_LIBTORCH_DIR}/torch/lib/lib${library}.so)
    target_link_libraries(torch::cpu INTERFACE torch::${library})
  endforeach()
  # libtorch.so would pull in CUDA; libtorch_cpu.so registers its operators when it is loaded, so it
  # must stay in the program even where the linker sees no symbol of it used.
  target_link_options(torch::cpu INTERFACE "LINKER:--no-as-needed")
  # The libraries that libtorch_cpu.so itself needs are found through its own run path.
  target_link_options(torch::cpu INTERFACE
    "LINKER:-rpath-link,${ZEROD_LIBTORCH_DIR}/torch/lib"
    "LINKER:-rpath-link,${ZEROD_LIBTORCH_DIR}/nvidia/cu13/lib")
endif()
