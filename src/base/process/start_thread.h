#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace tessera {

// Throws an Error that says what the thread that could not be made was for, and which limits on
// threads hold here.
[[noreturn]] void fail_thread(const std::string& purpose, const std::system_error& error);

// A thread that runs `body`; `purpose` is its name in the Error if it cannot be made ("a thread for
// PURPOSE").
template <typename Body>
std::thread start_thread(const std::string& purpose, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    fail_thread(purpose, error);
  }
}

}  // namespace tessera
