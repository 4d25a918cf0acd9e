//! What makes figures say less than they seem to.

use ferroce_stack::time::ack_timeout_ns;

use super::{Run, Summary};

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
    let too_long = ack_timeout_ns(plan.host.timeout).filter(|timeout| *timeout >= plan.until);
    let is_over = all.finished + all.failed == all.flows;
    let lost = summary.dropped + summary.struck;
    if let Some(timeout) = too_long.filter(|_| lost > 0 && !is_over) {
        warnings.push(format!(
            "{lost} packets were lost or struck by faults, and the ACK timeout (host.timeout = {}, \
             {:.3} ms) is not shorter than the duration: a flow that has to wait for one stands \
             still to the end",
            plan.host.timeout,
            timeout as f64 / 1e6
        ));
    }
    warnings
}
