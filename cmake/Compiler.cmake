# Warnings, sanitizers and CUDA for every target of this project: link to lls_compile_options.
add_library(lls_compile_options INTERFACE)
target_compile_features(lls_compile_options INTERFACE c_std_11)
target_compile_definitions(lls_compile_options INTERFACE _GNU_SOURCE)
target_include_directories(lls_compile_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# Rows of tables may leave out their last fields: zero means default.
target_compile_options(lls_compile_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wno-missing-field-initializers;-Werror;-Wshadow;-Wvla;-fno-math-errno;-ffp-contract=off>)
if(LLS_SANITIZE)
  target_compile_options(lls_compile_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=${LLS_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(lls_compile_options INTERFACE -fsanitize=${LLS_SANITIZE})
endif()
find_package(Threads REQUIRED)
target_link_libraries(lls_compile_options INTERFACE Threads::Threads m)

set(LLS_WITH_CUDA 0)
if(NOT LLS_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${LLS_CUDA_ARCHS})
    set(CMAKE_CUDA_STANDARD 17)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(LLS_WITH_CUDA 1)
  elseif(LLS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LLS_CUDA is ON, but no CUDA compiler was found: put nvcc on PATH or set CMAKE_CUDA_COMPILER")
  endif()
endif()
target_compile_definitions(lls_compile_options INTERFACE LLS_WITH_CUDA=${LLS_WITH_CUDA})
if(LLS_WITH_CUDA)
  # A kernel that spills registers to memory does not pass: ptxas warns, and the warning is an error.
  # By itself nvcc compresses PTX alone: machine code is a fifth of its size compressed, which any driver reads.
  # The host stubs that nvcc writes are C++; without these features they need no C++ runtime, and everything links as C.
  target_compile_options(lls_compile_options INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warning-as-error;-Xfatbin=-compress-all;-Xcompiler=-Wall,-fno-exceptions,-fno-threadsafe-statics;-Xcudafe=--diag_suppress=177>)
  target_include_directories(lls_compile_options SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()
message(STATUS "llmspeed: CUDA ${LLS_WITH_CUDA}, ${CMAKE_BUILD_TYPE}")
