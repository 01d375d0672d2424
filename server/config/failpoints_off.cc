#include "server/config/option_table.h"

namespace zerod {

void AppendFailpointOption(std::vector<OptionEntry>&) {}

}  // namespace zerod
