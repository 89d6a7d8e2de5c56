#pragma once

#include <pthread.h>

#include <cstddef>

namespace tessera::testing {

// While it lives, new threads get a stack of half of what a process can address: one of four
// threads at the latest cannot be made, whatever the limits of the user who tests.
class NoRoomForThreads {
 public:
  NoRoomForThreads() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &before_);
    pthread_attr_destroy(&attributes);
    set(size_t{1} << 46);
  }
  ~NoRoomForThreads() { set(before_); }
  NoRoomForThreads(const NoRoomForThreads&) = delete;
  NoRoomForThreads& operator=(const NoRoomForThreads&) = delete;

 private:
  static void set(size_t stack) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }

  size_t before_ = 0;
};

}  // namespace tessera::testing
