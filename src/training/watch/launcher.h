#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What a launcher tells its ranks by variables, before MPI starts.

// A text that is the same for all ranks of a start and that a later start of the same job does not
// have: PMIx's namespace, Open MPI's job, or Slurm's job and step, with Slurm's count of requeues.
// Only characters that a file name may have. Empty: this launcher tells nothing of the kind.
std::string launch_id();

// The host of each of `ranks` ranks where srun says it (a step whose tasks fill node after node);
// else empty.
std::vector<std::string> hosts_of_ranks(int ranks);

// The names in a Slurm host list, such as "n[08-10,12],login1". Empty for text that is none.
std::vector<std::string> expand_host_list(std::string_view text);

// Tasks of each node in Slurm's short form, such as "4(x2),3": 4, 4, 3. Empty for text that is
// none.
std::vector<int> expand_task_counts(std::string_view text);

}  // namespace tessera
