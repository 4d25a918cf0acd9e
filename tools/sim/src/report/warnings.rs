//! What makes figures say less than they seem to.

use super::{Run, Summary};

/// Nanoseconds that an ACK timeout of code 0 would take, each further code twice as long.
const TIMEOUT_UNIT: f64 = 4096.0;

/// A sentence for each reason to read a run's figures with care: flows that had no time to finish,
/// and losses whose timeout is longer than the simulation.
pub fn warnings(run: &Run<'_>, summary: &Summary) -> Vec<String> {
    let mut warnings = Vec::new();
    let all = &summary.all;
    if all.unfinished > 0 {
        warnings.push(format!(
            "{} of {} flows had not finished at {} ms: figures of flow completion times count them \
             as longer than all others",
            all.unfinished,
            all.flows,
            summary.ended_us / 1e3
        ));
    }
    let plan = &run.experiment.plan;
    let timeout = TIMEOUT_UNIT * f64::from(1_u32 << plan.host.timeout.min(31));
    let is_over = all.finished + all.failed == all.flows;
    let lost = summary.dropped + summary.struck;
    if lost > 0 && !is_over && plan.host.timeout > 0 && timeout >= plan.until as f64 {
        warnings.push(format!(
            "{lost} packets were lost or struck by faults, and the ACK timeout (host.timeout = {}, \
             {:.3} ms) is not shorter than the duration: a flow that has to wait for one stands \
             still to the end",
            plan.host.timeout,
            timeout / 1e6
        ));
    }
    warnings
}
