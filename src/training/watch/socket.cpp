#include "training/watch/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/system_error.h"

namespace tessera {
namespace {

// After so long without an answer of the other machine's kernel to what was sent, the connection
// ends: the machine is down, or cut off. A process that is merely stopped still gets answers.
constexpr unsigned kUnreachableMs = 15000;

// Lines that the other side does not take pile up to so many bytes.
constexpr size_t kMostUnsent = size_t{1} << 20;

void set_options(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnreachableMs, sizeof kUnreachableMs);
}

// A socket that is bound to a free port of all addresses of a family; closed if there is none.
Socket bind_any(int family) {
  Socket made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.is_open()) return {};
  if (family == AF_INET6) {
    const int off = 0;
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    if (setsockopt(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
        ::bind(made.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
      return {};
    return made;
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(made.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) return {};
  return made;
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Listener listen_anywhere() {
  constexpr int kBacklog = 1024;
  for (const int family : {AF_INET6, AF_INET}) {
    Listener listener{bind_any(family)};
    if (!listener.socket.is_open() || ::listen(listener.socket.fd(), kBacklog) != 0) continue;
    listener.port = port_of(listener.socket.fd());
    if (listener.port != 0) return listener;
  }
  fail("watch", "cannot listen on a port: {}", reason_of(errno));
}

Socket accept_one(const Socket& listener) {
  Socket accepted(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted.is_open()) set_options(accepted.fd());
  return accepted;
}

std::vector<std::string> own_addresses() {
  ifaddrs* listed = nullptr;
  if (::getifaddrs(&listed) != 0) return {"127.0.0.1"};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(listed, ::freeifaddrs);
  std::vector<std::string> far, near;
  for (const ifaddrs* entry = listed; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(entry->ifa_addr, length, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0)
      continue;
    // Addresses of one link (fe80::1%eth0) mean something on this machine alone.
    const std::string address = text.data();
    if (address.find('%') != std::string::npos) continue;
    ((entry->ifa_flags & IFF_LOOPBACK) != 0 ? near : far).push_back(address);
  }
  far.insert(far.end(), near.begin(), near.end());
  return far;
}

Socket connect_to(const std::string& address, int port, std::chrono::milliseconds limit,
                  const std::function<bool()>& give_up) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  Socket made(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.is_open()) return {};
  set_options(made.fd());
  if (::connect(made.fd(), found->ai_addr, found->ai_addrlen) == 0) return made;
  if (errno != EINPROGRESS) return {};
  constexpr int kLookMs = 50;
  for (std::chrono::milliseconds waited{0}; waited < limit;
       waited += std::chrono::milliseconds(kLookMs)) {
    if (give_up()) return {};
    pollfd ready{made.fd(), POLLOUT, 0};
    if (::poll(&ready, 1, kLookMs) <= 0) continue;
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(made.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0)
      return made;
    return {};
  }
  return {};
}

LineSocket::LineSocket(Socket socket) : socket_(std::move(socket)) {}

void LineSocket::end(int error) {
  ended_ = true;
  // A process that dies with data unread resets its connection: no other end than a closed one.
  if (error != 0 && error != ECONNRESET && error != EPIPE) reason_ = reason_of(error);
}

std::vector<std::string> LineSocket::read(size_t limit) {
  std::vector<std::string> lines;
  std::array<char, 65536> part;
  while (!ended_) {
    const ssize_t got = ::recv(fd(), part.data(), part.size(), 0);
    if (got == 0) end(0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0 && errno != EINTR) end(errno);
    if (got <= 0) continue;
    in_.append(part.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t at = in_.find('\n'); at != std::string::npos; at = in_.find('\n', begin)) {
      lines.push_back(in_.substr(begin, at - begin));
      begin = at + 1;
    }
    in_.erase(0, begin);
    if (in_.size() > limit) end(EPROTO);
  }
  return lines;
}

void LineSocket::write(std::string_view line) {
  if (ended_) return;
  if (out_.size() < kMostUnsent) {
    out_.append(line);
    out_ += '\n';
  }
  flush();
}

void LineSocket::flush() {
  while (!ended_ && !out_.empty()) {
    const ssize_t sent = ::send(fd(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) {
      // Whether the other side has ended is for read() to say, which may still find its last words.
      // But the system tells a reason once only.
      if (errno != ECONNRESET && errno != EPIPE) reason_ = reason_of(errno);
      out_.clear();
      return;
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
}

void wait_readable(const std::vector<int>& fds, std::chrono::milliseconds limit) {
  std::vector<pollfd> polled;
  for (const int fd : fds)
    if (fd >= 0) polled.push_back({fd, POLLIN, 0});
  ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
}

}  // namespace tessera
