#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static lls_log_level threshold = LLS_LOG_WARN;
static bool plan;
static FILE *file; // NULL: standard error
static lls_log_fn user_sink;
static void *user_data;

static const char *level_name(lls_log_level level) {
    switch (level) {
    case LLS_LOG_ERROR: return "error";
    case LLS_LOG_WARN: return "warn";
    case LLS_LOG_INFO: return "info";
    case LLS_LOG_DEBUG: return "debug";
    }
    return "?";
}

static void read_environment(void) {
    const char *level = getenv("LLS_LOG_LEVEL");
    for (int i = LLS_LOG_ERROR; level && i <= LLS_LOG_DEBUG; i++) {
        if (strcmp(level, level_name((lls_log_level)i)) == 0) threshold = (lls_log_level)i;
    }
    const char *what = getenv("LLS_LOG");
    plan = what && strcmp(what, "plan") == 0;
    const char *path = getenv("LLS_LOG_FILE");
    if (path && *path) file = fopen(path, "a");
}

static void emit(lls_log_level level, const char *format, va_list args) {
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    pthread_mutex_lock(&sink_lock);
    if (user_sink) {
        user_sink(level, text, user_data);
    } else {
        FILE *out = file ? file : stderr;
        fprintf(out, "llmspeed %s: %s\n", level_name(level), text);
        fflush(out);
    }
    pthread_mutex_unlock(&sink_lock);
}

void lls_log_set(lls_log_fn fn, void *user) {
    pthread_mutex_lock(&sink_lock);
    user_sink = fn;
    user_data = user;
    pthread_mutex_unlock(&sink_lock);
}

void lls__log(lls_log_level level, const char *format, ...) {
    pthread_once(&once, read_environment);
    if (level > threshold) return;
    va_list args;
    va_start(args, format);
    emit(level, format, args);
    va_end(args);
}

bool lls__log_plan_enabled(void) {
    pthread_once(&once, read_environment);
    return plan;
}

void lls__log_plan(const char *format, ...) {
    va_list args;
    va_start(args, format);
    emit(LLS_LOG_INFO, format, args);
    va_end(args);
}
