#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <fstream>

#include "doctor/probes/probes.h"

namespace tessera::doctor {
namespace {

using Bytes = std::array<unsigned char, 16>;  // an IPv4 address fills four

// The bytes of an address of IPv4 or IPv6, and how many they are; 0 for other families.
size_t bytes_of(const sockaddr& address, Bytes& bytes) {
  if (address.sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &address, sizeof four);
    std::memcpy(bytes.data(), &four.sin_addr, 4);
    return 4;
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, &address, sizeof six);
    std::memcpy(bytes.data(), &six.sin6_addr, 16);
    return 16;
  }
  return 0;
}

std::string text_of(const Bytes& bytes, size_t count) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(count == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

int leading_ones(const Bytes& mask, size_t count) {
  int ones = 0;
  for (size_t i = 0; i < count; ++i)
    for (int bit = 7; bit >= 0; --bit) {
      if ((mask[i] >> bit & 1) == 0) return ones;
      ++ones;
    }
  return ones;
}

int64_t speed_of(const std::string& interface) {
  std::ifstream in("/sys/class/net/" + interface + "/speed");
  int64_t mbit = 0;
  return in >> mbit && mbit > 0 ? mbit : 0;
}

}  // namespace

std::string subnet_text(const std::string& address, int prefix) {
  Bytes bytes{};
  size_t count = 4;
  if (inet_pton(AF_INET, address.c_str(), bytes.data()) != 1) {
    count = 16;
    if (inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) return "";
  }
  for (size_t bit = static_cast<size_t>(prefix); bit < 8 * count; ++bit)
    bytes[bit / 8] &= static_cast<unsigned char>(~(0x80U >> bit % 8));
  return fmt::format("{}/{}", text_of(bytes, count), prefix);
}

std::vector<NetworkAddress> probe_addresses() {
  std::vector<NetworkAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    Bytes bytes{}, mask{};
    const size_t count = bytes_of(*entry->ifa_addr, bytes);
    const bool link_local = count == 16 ? bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80
                                        : bytes[0] == 169 && bytes[1] == 254;
    if (count == 0 || link_local || bytes_of(*entry->ifa_netmask, mask) != count) continue;
    const std::string address = text_of(bytes, count);
    found.push_back({entry->ifa_name, address, subnet_text(address, leading_ones(mask, count)),
                     speed_of(entry->ifa_name)});
  }
  freeifaddrs(list);
  return found;
}

}  // namespace tessera::doctor
