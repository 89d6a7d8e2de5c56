#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::doctor {

// "0-3, 8": rising numbers, as the kernel writes its lists of processors.
std::string numbers_text(const std::vector<int>& numbers);

// "rank 2", "ranks 0-3, 8".
std::string ranks_text(const std::vector<int>& ranks);

// The numbers of a list as the kernel writes it ("0-3,8"). What is no number ends it.
std::vector<int> parse_numbers(std::string_view text);

// The middle one; of an even count the mean of the two in the middle. 0 of none.
double median(std::vector<double> values);

// "1.23 GB/s", "112 MB/s", "85 kB/s".
std::string rate_text(double bytes_per_s);

// "2.34 s", "1.2 ms", "12 us".
std::string time_text(double seconds);

}  // namespace tessera::doctor
