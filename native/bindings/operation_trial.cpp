// SPDX-License-Identifier: GPL-2.0-or-later
#include "../pair/operation_trial.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../pair/operation_plan.hpp"
#include "bindings.hpp"

namespace softroce {

void bind_operation_trial(nb::module_& m) {
  nb::class_<TrialOutcome>(m, "OperationOutcome", "What a seed of the operation trial came to.")
      .def_ro("violations", &TrialOutcome::violations, "each as RULE: WHAT")
      .def_ro("met", &TrialOutcome::met, "features of the seed")
      .def_ro("posts", &TrialOutcome::posts, "numbers of the posts that were in the plan")
      .def_ro("story", &TrialOutcome::story, "what was posted and what completed, if asked for");
  m.def(
      "run_operation_trial",
      [](std::uint64_t seed, const MessageConfig& config, std::vector<std::uint32_t> without_posts,
         std::vector<std::string> without_disturbances, bool overlaps_mix, bool tells_story) {
        const nb::gil_scoped_release release;
        return run_operation_trial(seed, config,
                                   {.without_posts = std::move(without_posts),
                                    .without_disturbances = std::move(without_disturbances),
                                    .overlaps_mix = overlaps_mix,
                                    .tells_story = tells_story});
      },
      nb::arg("seed"), nb::arg("config"), nb::arg("without_posts") = nb::list(),
      nb::arg("without_disturbances") = nb::list(), nb::arg("overlaps_mix") = false,
      nb::arg("tells_story") = false,
      "Run a seed of operations between two RNICs, without some of its posts and disturbances");
  m.def(
      "operation_trial",
      [](std::uint64_t seed, const MessageConfig& config, std::string mistake) {
        const nb::gil_scoped_release release;
        return run_operation_trial(seed, config, {.mistake = std::move(mistake)}).violations;
      },
      nb::arg("seed"), nb::arg("config"), nb::arg("mistake") = "",
      "The violations of a seed; `mistake`: falsify what the model is shown");
  m.attr("operation_mistakes") = nb::cast(trial_mistakes());
  nb::list disturbances;
  for (const char* each : kDisturbances) disturbances.append(each);
  m.attr("operation_disturbances") = disturbances;
}

}  // namespace softroce
