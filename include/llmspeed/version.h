/* Version of the library. The shared library's SONAME carries LLS_VERSION_MAJOR. */
#ifndef LLMSPEED_VERSION_H
#define LLMSPEED_VERSION_H

#define LLS_VERSION_MAJOR 0
#define LLS_VERSION_MINOR 1
#define LLS_VERSION_PATCH 0
#define LLS_VERSION_STRING "0.1.0"

#endif
