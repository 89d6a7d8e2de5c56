#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A socket of its own, closed with the object. None is inherited by programs that are started.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Listens on a free port of all addresses of this machine, IPv4 and, where there is one, IPv6.
// Error if that is refused.
struct Listener {
  Socket socket;
  int port = 0;
};
Listener listen_anywhere();
// The next connection that waits; a closed socket if there is none. Does not wait.
Socket accept_one(const Socket& listener);

// The numeric addresses of this machine's interfaces that are up; those of the loopback come last.
std::vector<std::string> own_addresses();

// Connects to a numeric address. A closed socket if that fails, takes longer than `limit`, or if
// `give_up()` becomes true.
Socket connect_to(const std::string& address, int port, std::chrono::milliseconds limit,
                  const std::function<bool()>& give_up);

// Lines of text over a connection, without ever waiting for the other side.
class LineSocket {
 public:
  explicit LineSocket(Socket socket);

  int fd() const { return socket_.fd(); }
  // What has come since the last call, in whole lines without their ends. A line of more than
  // `limit` bytes ends the connection: it is not from this program.
  std::vector<std::string> read(size_t limit = size_t{16} << 20);
  // Sends a line; what the connection does not take now goes with later calls of write() or
  // flush(). While much is left of earlier lines (the other side does not read), the line is
  // dropped.
  void write(std::string_view line);
  void flush();
  bool unsent() const { return !out_.empty(); }

  // Whether the connection has ended, and how: the reason of the system, empty if the other side
  // closed it.
  bool ended() const { return ended_; }
  const std::string& reason() const { return reason_; }

 private:
  void end(int error);

  Socket socket_;
  std::string in_, out_;
  bool ended_ = false;
  std::string reason_;
};

// Returns when one of the sockets can be read, or after `limit`. Sockets that are closed are passed
// over.
void wait_readable(const std::vector<int>& fds, std::chrono::milliseconds limit);

}  // namespace tessera
