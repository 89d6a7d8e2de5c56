// What Open MPI has chosen to move messages with. MPI has no call that says it. Open MPI loads each
// part (component) from a file of its own and unloads those that it does not choose, so the files
// that are still mapped after its start are the chosen ones. Control variables of MPI's tools
// interface (MPI_T) tell what was asked for.
#include <mpi.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "doctor/probes/probes.h"

namespace tessera::doctor {
namespace {

bool mpi_runs() {
  int begun = 0, ended = 0;
  return MPI_Initialized(&begun) == MPI_SUCCESS && MPI_Finalized(&ended) == MPI_SUCCESS &&
         begun != 0 && ended == 0;
}

std::string thread_level() {
  int level = 0;
  if (MPI_Query_thread(&level) != MPI_SUCCESS) return "";
  switch (level) {
    case MPI_THREAD_MULTIPLE:
      return "MPI_THREAD_MULTIPLE";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    default:
      return "MPI_THREAD_SINGLE";
  }
}

// "pml ucx" of a line of /proc/self/maps that ends with ".../mca_pml_ucx.so".
std::string component_of(const std::string& line) {
  constexpr std::string_view kStart = "/mca_", kEnd = ".so";
  const size_t begin = line.rfind(kStart);
  const size_t end = line.rfind(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  std::string name = line.substr(begin + kStart.size(), end - begin - kStart.size());
  const size_t between = name.find('_');
  if (between == std::string::npos) return "";
  name[between] = ' ';
  return name;
}

std::vector<std::string> mapped_components() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> found;
  for (std::string line; std::getline(maps, line);) {
    const std::string component = component_of(line);
    for (const char* framework : {"pml ", "mtl ", "btl "})
      if (component.starts_with(framework)) found.insert(component);
  }
  return {found.begin(), found.end()};
}

// The value of a control variable that is a text; empty if there is none of that name.
std::string control_variable(const char* name) {
  int index = 0;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) return "";
  int verbosity = 0, binding = 0, scope = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_T_enum values = MPI_T_ENUM_NULL;
  if (MPI_T_cvar_get_info(index, nullptr, nullptr, &verbosity, &type, &values, nullptr, nullptr,
                          &binding, &scope) != MPI_SUCCESS ||
      type != MPI_CHAR)
    return "";
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int count = 0;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return "";
  // Of a text Open MPI does not say how long it is.
  std::vector<char> text(std::max<size_t>(static_cast<size_t>(std::max(count, 0)), 1 << 16) + 1);
  const bool read = MPI_T_cvar_read(handle, text.data()) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  text.back() = '\0';
  return read ? text.data() : "";
}

}  // namespace

Transports probe_transports() {
  Transports transports;
  if (!mpi_runs()) return transports;
  transports.thread_level = thread_level();
  transports.components = mapped_components();
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return transports;
  for (const char* name : {"pml", "btl", "mtl", "btl_tcp_if_include", "btl_tcp_if_exclude",
                           "pml_ucx_tls", "pml_ucx_devices"}) {
    const std::string value = control_variable(name);
    if (!value.empty()) transports.settings[name] = value;
  }
  MPI_T_finalize();
  return transports;
}

}  // namespace tessera::doctor
