#pragma once

#include <vector>

#include "doctor/facts/facts.h"
#include "doctor/facts/measured.h"
#include "doctor/facts/nodes.h"
#include "doctor/judge/finding.h"
#include "doctor/report/table.h"

// The sections of the report, made of facts and measurements. What is alike on all ranks stands
// once; of many rows the first are shown.
namespace tessera::doctor {

Table versions_table(const std::vector<RankFacts>& facts);
Table environment_table(const std::vector<RankFacts>& facts);
Table transports_table(const std::vector<RankFacts>& facts);
Table network_table(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes);
Table devices_table(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes);
Table cores_table(const std::vector<RankFacts>& facts);
Table limits_table(const std::vector<RankFacts>& facts, const std::vector<Node>& nodes);
Table clocks_table(const std::vector<double>& ahead, const std::vector<Node>& nodes);
Table folder_table(const FolderFacts& folder, const std::vector<RankFacts>& facts);
// `way`: how messages of the world travel.
Table pairs_table(const std::vector<PairSpeed>& pairs, int ranks, const std::vector<Node>& nodes,
                  const std::string& way);
Table axes_table(const std::vector<AxisSpeed>& axes);
Table products_table(const std::vector<ProductSpeed>& products,
                     const std::vector<RankFacts>& facts);

// Errors first; "nothing to report" if there is none.
Table findings_table(const Findings& findings);

}  // namespace tessera::doctor
