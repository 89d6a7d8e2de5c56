#include <ATen/Version.h>
#include <elf.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <mpi.h>
#include <sys/utsname.h>

#include <cstring>
#include <fstream>

#include "base/version.h"
#include "doctor/probes/probes.h"
#include "kernels/cpu_target.h"

namespace tessera::doctor {
namespace {

// The word that follows `name` in a longer text; empty if it is not there.
std::string word_after(const std::string& text, const std::string& name) {
  const size_t at = text.find(name);
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size();
  return text.substr(begin, text.find_first_of(", \n", begin) - begin);
}

// The id that the linker gave the main program: equal for equal programs, whatever their version.
std::string build_id() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = object->dlpi_phdr[i];
          if (part.p_type != PT_NOTE) continue;
          const char* at = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
          const char* const end = at + part.p_memsz;
          const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof note);
            const char* const name = at + sizeof note;
            const char* const value = name + padded(note.n_namesz);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                std::memcmp(name, "GNU", 4) == 0)
              for (size_t byte = 0; byte < note.n_descsz; ++byte)
                *static_cast<std::string*>(out) +=
                    fmt::format("{:02x}", static_cast<unsigned char>(value[byte]));
            at = value + padded(note.n_descsz);
          }
        }
        return 1;  // the main program comes first: no other is looked at
      },
      &id);
  return id;
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      return colon == std::string::npos ? "" : line.substr(colon + 2);
    }
  return "";
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "";
  const std::string whole(text, static_cast<size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

}  // namespace

Texts probe_versions() {
  Texts versions;
  versions["program"] = program_version();
  versions["build"] = build_id();
  versions["LibTorch"] = word_after(at::show_config(), "TORCH_VERSION=");
  versions["MPI"] = mpi_version();
  utsname system{};
  if (uname(&system) == 0) versions["kernel"] = system.release;
  versions["glibc"] = gnu_get_libc_version();
  versions["processor"] = processor();
  versions["kernels"] =
      fmt::format("{} (LibTorch {})", kernels::cpu_target(), at::get_cpu_capability());
  return versions;
}

}  // namespace tessera::doctor
